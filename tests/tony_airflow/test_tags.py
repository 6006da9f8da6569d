"""Which jobs are a task's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tony_airflow.tags import TaskTags, generation_of, task_tags
from tony_core.schedulers.port import AppState, AppStatus

TAGS = TaskTags("dag", "run", "task", -1, 0, first=False)
CLEARED = TaskTags("dag", "run", "task", -1, 1, first=True)


def app(tags: TaskTags, state: AppState = AppState.RUNNING, at: float = 1.0) -> AppStatus:
    name = f"app-{at}"
    return AppStatus(name, "n", "u", "q", state, tags=tags.both, submitted=at)


def test_they_are_what_yarn_takes() -> None:
    for tag in (*TAGS.both, *CLEARED.both):
        assert tag == tag.lower() and tag.isascii() and len(tag) <= 100


def test_labels_for_people() -> None:
    ti = SimpleNamespace(
        dag_id="Train", run_id="manual__2026-11-23T02:08:43+00:00", task_id="tüb, ingen",
        map_index=3, try_number=2, max_tries=2, log_url="http://airflow/dags/Train",
    )  # fmt: skip
    tags = task_tags(ti, 2)
    assert tags.url == "http://airflow/dags/Train"
    assert set(tags.added_to(["mine"])) == {
        "mine", *tags.both, "airflow.dag:Train", "airflow.run:manual__2026-11-23T02:08:43+00:00",
        "airflow.task:t_b__ingen", "airflow.try:2", "airflow.map:3",
    }  # fmt: skip
    assert not any("map" in label for label in TAGS.labels())
    long = TaskTags("d" * 250, "run", "task", -1, 0)
    assert max(map(len, long.labels())) == 100


def test_labels_give_way_to_the_jobs_own_tags() -> None:
    own = [f"tag{number}" for number in range(12)]
    for count in range(len(own)):
        kept = TAGS.added_to(own[:count])
        assert {*own[:count], *TAGS.both} <= set(kept)
        assert len(kept) <= max(9, count + 2)


def test_each_task_run_map_index_and_generation_has_its_own() -> None:
    others = [
        TaskTags("dag2", "run", "task", -1, 0),
        TaskTags("dag", "run2", "task", -1, 0),
        TaskTags("dag", "run", "task2", -1, 0),
        TaskTags("dag", "run", "task", 0, 0),
        TaskTags("da", "grun", "task", -1, 0),
    ]
    assert len({one.of_task for one in (TAGS, *others)}) == len(others) + 1
    assert TAGS.of_task == CLEARED.of_task
    assert TAGS.of_generation != CLEARED.of_generation
    assert TAGS.state_key != CLEARED.state_key


def test_the_generation_counts_clears_and_no_retries() -> None:
    def ti(**fields: Any) -> Any:
        return SimpleNamespace(dag_id="d", run_id="r", task_id="t", **fields)

    first = task_tags(ti(max_tries=2, try_number=1, map_index=-1), retries=2)
    retried = task_tags(ti(max_tries=2, try_number=2, map_index=-1), retries=2)
    # Airflow, on a clear: max_tries = try_number + retries
    cleared = task_tags(ti(max_tries=4, try_number=3, map_index=-1), retries=2)
    assert first.both == retried.both != cleared.both
    assert (first.first, retried.first, cleared.first) == (True, False, True)
    assert generation_of(ti(max_tries=None), None) == 0
    assert task_tags(ti(map_index=None), None).map_index == -1


def test_the_running_one_of_this_generation_is_kept_and_others_are_left() -> None:
    mine, older, stranger = app(TAGS, at=3.0), app(CLEARED, at=2.0), app(TAGS, at=9.0)
    stranger = AppStatus("x", "n", "u", "q", AppState.RUNNING, tags=("airflow_task_else",))
    ended = app(CLEARED, AppState.KILLED, at=1.0)
    found = TAGS.predecessors([older, stranger, ended, mine])
    assert found.reusable == mine
    assert found.stale == (older,)


def test_of_two_of_a_generation_the_newest_goes_on() -> None:
    old, new = app(TAGS, at=1.0), app(TAGS, at=2.0)
    found = TAGS.predecessors([old, new])
    assert found.reusable == new and found.stale == (old,)


def test_a_job_that_succeeded_is_the_result_of_a_retry_only() -> None:
    done = app(TAGS, AppState.SUCCEEDED)
    assert TAGS.predecessors([done]).reusable == done
    assert TaskTags("dag", "run", "task", -1, 0, first=True).predecessors([done]).reusable is None
    assert CLEARED.predecessors([done]).reusable is None
    assert TAGS.predecessors([app(TAGS, AppState.FAILED)]).reusable is None


def test_a_running_one_comes_before_one_that_succeeded() -> None:
    done, running = app(TAGS, AppState.SUCCEEDED, at=2.0), app(TAGS, at=1.0)
    assert TAGS.predecessors([done, running]).reusable == running


def test_yarn_may_have_lower_cased_what_it_was_given() -> None:
    loud = AppStatus(
        "a", "n", "u", "q", AppState.RUNNING, tags=tuple(tag.upper() for tag in TAGS.both)
    )
    assert TAGS.predecessors([loud]).reusable == loud
