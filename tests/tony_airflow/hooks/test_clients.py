"""Who gets which client of a scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tony_airflow.connection import Site
from tony_airflow.hooks.clients import Clients
from tony_core.files.registry import filesystem, register
from tony_core.schedulers.port import NoSuchApplication, SchedulerError


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    return Clients(Site(home=str(tmp_path / "home")))


def test_an_idle_one_is_used_again_and_two_at_a_time_are_two(clients: Clients) -> None:
    with clients.one() as first, clients.one() as second:
        assert first is not second
    with clients.one() as again:
        assert again in (first, second)
    clients.close()


def test_one_that_was_answered_is_kept_and_one_in_trouble_is_not(clients: Clients) -> None:
    with pytest.raises(NoSuchApplication), clients.one() as first:
        first.scheduler.status("local_20260101000000_abcdef")
    with pytest.raises(SchedulerError), clients.one() as second:
        raise SchedulerError("the connection broke")
    assert second is first
    with clients.one() as third:
        assert third is not first
    clients.close()


def test_its_file_systems_are_its_own(clients: Clients) -> None:
    from tony_core.files.local import LocalFileSystem

    own = LocalFileSystem()
    with clients.taken() as opened:
        with opened.files:
            register("far", lambda: own)
        with opened.files:
            assert filesystem("far:///x") is own
        with pytest.raises(OSError, match="nothing here knows far://"):
            filesystem("far:///x")
    clients.close()


def test_after_the_end_those_in_use_are_closed_as_they_come_back(clients: Clients) -> None:
    with clients.one() as first:
        clients.close()
    with clients.one() as second:
        assert second is not first
