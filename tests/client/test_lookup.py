"""Which application is meant."""

from __future__ import annotations

import pytest

from tests.client.scripted import Scripted, status
from tony_core.client.errors import NotFound
from tony_core.client.kill import kill
from tony_core.client.lookup import only, resolve
from tony_core.schedulers.port import AppState, AppStatus, NoSuchApplication


def scheduler() -> Scripted:
    return Scripted(
        "",
        status("local_2024_aaa1", AppState.SUCCEEDED, submitted=1.0),
        status("local_2025_aab2", AppState.RUNNING, submitted=3.0),
        status("local_2025_ccc3", AppState.FAILED, submitted=2.0),
    )


def runs(status: AppStatus) -> bool:
    return not status.state.ended


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local_2024_aaa1", "local_2024_aaa1"),
        ("local_2024", "local_2024_aaa1"),
        ("ccc3", "local_2025_ccc3"),
        (None, "local_2025_aab2"),
    ],
)
def test_found(text: str, expected: str) -> None:
    assert resolve(scheduler(), text).app_id == expected


def test_a_partial_id_is_resolved_and_the_whole_one_named() -> None:
    assert resolve(scheduler(), None).how == "local_2025_aab2, the newest application"
    assert resolve(scheduler(), "local_2024").how == "local_2024_aaa1"
    assert resolve(scheduler(), "local_2024_aaa1").how == ""


def test_several_are_named() -> None:
    with pytest.raises(NotFound, match="it matches local_2025_aab2, local_2025_ccc3"):
        resolve(scheduler(), "local_2025")


def test_none() -> None:
    with pytest.raises(
        NotFound, match=r"no application 'x'.*tony list --scheduler \w+ shows.*tony history list"
    ):
        resolve(scheduler(), "x")
    with pytest.raises(NotFound, match="no application on the scheduler"):
        resolve(Scripted(), None)


def test_other_users_jobs_are_never_chosen_by_default() -> None:
    made = scheduler()
    made.user = "ann"
    made.set("local_2025_aab2", user="bob")
    assert resolve(made, None).app_id == "local_2025_ccc3"
    assert resolve(made, "aab2").app_id == "local_2025_aab2"
    with pytest.raises(NotFound, match="no running job of ann's"):
        only(made, runs, "running job", "kill")
    made.user = "eve"
    with pytest.raises(NotFound, match="no application of eve's"):
        resolve(made, None)


def test_the_only_one() -> None:
    assert only(scheduler(), runs, "running job", "kill").app_id == "local_2025_aab2"
    with pytest.raises(NotFound, match="name the one to kill: local_2025_aab2"):
        only(scheduler(), lambda _: True, "job", "kill")
    with pytest.raises(NotFound, match="no job"):
        only(scheduler(), lambda _: False, "job", "kill")


class TestKill:
    def test_kill_ends_it_and_reports_that(self) -> None:
        made = scheduler()
        done = kill(made, "local_2025_aab2", "too slow")
        assert (done.ended, done.was_over) == (True, False)
        assert made.killed == [("local_2025_aab2", "too slow")]

    def test_names_whom_the_scheduler_takes_the_caller_for(self) -> None:
        made = scheduler()
        made.user = "eve"  # as by HADOOP_USER_NAME
        kill(made, "local_2025_aab2")
        assert made.killed == [("local_2025_aab2", "killed by eve with tony kill")]

    def test_killing_an_ended_job_does_nothing(self) -> None:
        made = scheduler()
        assert kill(made, "local_2025_ccc3").was_over
        assert made.killed == []

    def test_one_that_does_not_end(self) -> None:
        class Stubborn(Scripted):
            def kill(self, app_id: str, reason: str) -> None:
                self.killed.append((app_id, reason))

        made = Stubborn("", status())
        done = kill(made, "app_1_0001", wait_s=0.2)
        assert not done.ended
        assert "tony kill" in made.killed[0][1]

    def test_none_such(self) -> None:
        with pytest.raises(NoSuchApplication):
            kill(scheduler(), "nope")


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_id_is_a_mistake_and_not_the_newest(text: str) -> None:
    with pytest.raises(NotFound, match="empty"):
        resolve(scheduler(), text)
