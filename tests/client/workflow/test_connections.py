"""Who gets which client of a scheduler."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tony_core.client.workflow.connections import ClientPool
from tony_core.files.registry import filesystem, register
from tony_core.schedulers.port import NoSuchApplication, SchedulerError


@pytest.fixture
def clients(tmp_path: Path) -> ClientPool:
    return ClientPool("local", lambda: {**os.environ, "TONY_HOME": str(tmp_path / "home")})


def test_an_idle_one_is_used_again_and_two_at_a_time_are_two(clients: ClientPool) -> None:
    with clients.client() as first, clients.client() as second:
        assert first is not second
    with clients.client() as again:
        assert again in (first, second)
    clients.close()


def test_one_that_was_answered_is_kept_and_one_in_trouble_is_not(clients: ClientPool) -> None:
    with pytest.raises(NoSuchApplication), clients.client() as first:
        first.scheduler.status("local_20260101000000_abcdef")
    with pytest.raises(SchedulerError), clients.client() as second:
        raise SchedulerError("the connection broke")
    assert second is first
    with clients.client() as third:
        assert third is not first
    clients.close()


def test_its_file_systems_are_its_own(clients: ClientPool) -> None:
    from tony_core.files.local import LocalFileSystem

    own = LocalFileSystem()
    with clients.borrow() as pooled:
        with pooled.files:
            register("far", lambda: own)
        with pooled.files:
            assert filesystem("far:///x") is own
        with pytest.raises(OSError, match="nothing here knows far://"):
            filesystem("far:///x")
    clients.close()


def test_after_the_end_those_in_use_are_closed_as_they_come_back(clients: ClientPool) -> None:
    with clients.client() as first:
        clients.close()
    with clients.client() as second:
        assert second is not first
