"""Calls with deadlines, in bounded number, in the viewer's name."""

from __future__ import annotations

import threading
from typing import Iterator

import pytest

from tests.client.scripted import status
from tests.portal.scripted import Listed, Opened
from tony_core.portal import schedulers
from tony_core.portal.schedulers import SchedulerPool, TooLate
from tony_core.schedulers.port import LastingRefusal, Scheduler, SchedulerError


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchedulerPool]:
    Opened(monkeypatch, yarn=Listed(status()), local=Listed())
    made = SchedulerPool(("local", "yarn"), is_for_many=True, env={"HOME": "/nowhere"})
    yield made
    made.close()


def test_an_answer_an_error_and_an_object_that_is_used_again(
    pool: SchedulerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(monkeypatch, yarn=Listed(status()))
    assert [one.name for one in pool.call("yarn", lambda one: one.list())] == ["mnist"]

    def refuse(scheduler: Scheduler) -> None:
        raise LastingRefusal("ask your administrator")

    with pytest.raises(LastingRefusal, match="ask your administrator"):
        pool.call("yarn", refuse)
    assert len(opened.envs) == 1


def test_each_viewer_is_a_proxy_user_of_his_own_and_the_embedded_scheduler_has_none(
    pool: SchedulerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(monkeypatch, yarn=Listed(status()), local=Listed())
    for viewer in ("ann", "bob", "ann"):
        pool.call("yarn", lambda one: one.list(), user=pool.user_for("yarn", viewer))
    pool.call("local", lambda one: one.list(), user=pool.user_for("local", "ann"))
    assert [env.get("HADOOP_PROXY_USER") for env in opened.envs] == ["ann", "bob", None]
    personal = SchedulerPool(("yarn",), env={})
    assert personal.user_for("yarn", "ann") == "", "a portal for its own user is that user"


def test_a_name_that_can_be_no_users_is_refused_before_anything_is_opened(
    pool: SchedulerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(monkeypatch)
    with pytest.raises(SchedulerError, match="no user's short name"):
        pool.call("yarn", lambda one: one.list(), user="ann@EXAMPLE.COM")
    assert not opened.envs


def test_what_hangs_costs_its_caller_the_deadline_and_others_nothing(
    pool: SchedulerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "CALLS_OF_USER", 2)
    hung = Listed(status())
    Opened(monkeypatch, yarn=hung)
    go_on = threading.Event()

    def hang(scheduler: Scheduler) -> bool:
        return go_on.wait(60)

    for _ in range(2):
        with pytest.raises(TooLate, match=r"yarn, a look: no answer within 0\.05 s"):
            pool.call("yarn", hang, user="ann", within_s=0.05, what="a look")
    with pytest.raises(TooLate, match="2 earlier calls have no answer yet"):
        pool.call("yarn", lambda one: one.list(), user="ann", within_s=0.05)
    assert pool.call("yarn", lambda one: len(one.list()), user="bob") == 1
    go_on.set()
    # Their places are free again; the objects, which may be in any state, are closed.
    assert pool.call("yarn", lambda one: len(one.list()), user="ann", within_s=60) == 1
    assert hung.closed >= 1


def test_a_scheduler_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SchedulerPool(("yarn",), env={"HOME": "/nowhere"})
    with pytest.raises(SchedulerError, match="Set HADOOP_CONF_DIR"):
        pool.call("yarn", lambda one: one.list())
