"""The client's lease."""

from __future__ import annotations

from tony_core.master.client_lease import Lease


def test_without_a_lease_nothing_passes() -> None:
    lease = Lease(None, 0.0)
    assert lease.next_deadline() is None
    assert lease.check(1e9) is None


def test_it_expires_once_when_it_is_not_renewed() -> None:
    lease = Lease(30.0, 100.0)
    assert lease.next_deadline() == 130.0
    assert lease.check(129.9) is None
    reason = lease.check(130.0)
    assert reason is not None and "tony.client.lease=30s" in reason
    assert lease.check(200.0) is None
    assert lease.next_deadline() is None


def test_a_look_renews_it() -> None:
    lease = Lease(30.0, 0.0)
    lease.renew(25.0)
    assert lease.check(54.0) is None
    assert lease.check(55.0) is not None


def test_until_the_first_look_a_shorter_one_counts() -> None:
    lease = Lease(600.0, 100.0, first_s=45.0)
    assert lease.next_deadline() == 145.0
    reason = lease.check(145.0)
    assert reason is not None and "tony.client.first-lease=45s" in reason
    assert lease.next_deadline() is None

    lease = Lease(600.0, 100.0, first_s=45.0)
    lease.renew(140.0)
    assert lease.next_deadline() == 740.0
    reason = lease.check(740.0)
    assert reason is not None and "tony.client.lease=600s" in reason

    lease = Lease(600.0, 100.0, first_s=45.0)
    lease.hold()
    assert lease.next_deadline() is None


def test_a_first_lease_never_prolongs_and_is_none_of_its_own() -> None:
    assert Lease(30.0, 0.0, first_s=45.0).next_deadline() == 30.0
    assert Lease(None, 0.0, first_s=45.0).next_deadline() is None


def test_a_client_that_waits_is_there() -> None:
    lease = Lease(2.0, 0.0)
    lease.hold()
    lease.hold()
    lease.let_go(10.0)
    assert lease.next_deadline() is None
    assert lease.check(100.0) is None
    lease.let_go(100.0)
    assert lease.check(101.9) is None
    assert lease.check(102.0) is not None
