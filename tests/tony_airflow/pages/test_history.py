"""Which job a task instance may show, and which it may not."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tests.tony_airflow.pages.written import APP_ID, CONTAINER, EVIL, TI_KEY, written
from tony_airflow.pages import history
from tony_airflow.pages.history import (
    PageNotFound,
    RecordedJob,
    TaskInstanceKey,
    plain_xcom,
    site_for,
)
from tony_core.client.logs import LogFile

XCOMS = {"application_id": APP_ID, "tony_connection": {"connection": "", "scheduler": "local"}}


def connections(conn_id: str) -> Any:
    raise KeyError(conn_id)


def job(ti_key: TaskInstanceKey = TI_KEY, **xcoms: Any) -> RecordedJob:
    stored: Dict[str, Any] = {**XCOMS, **xcoms}
    return RecordedJob(ti_key, stored.get, connections)


def refused(ti_key: TaskInstanceKey = TI_KEY, **xcoms: Any) -> str:
    with pytest.raises(PageNotFound) as why, job(ti_key, **xcoms):
        pass
    return str(why.value)


def test_its_own_job(tony_home: Path) -> None:
    written(tony_home)
    with job() as found:
        assert found.view.app_id == APP_ID and found.view.state.value == "FAILED"
        assert [event["text"] for event in found.record.events] == ["session 0 begins"]
        logs = found.logs("worker:0")
        assert [(log.container, log.stream) for log in logs] == [
            (CONTAINER, "stdout"),
            (CONTAINER, "stderr"),
        ]
        assert logs[0].lines == (f"the last epoch {EVIL}",)
        for task in ("worker:1", "../worker:0", "am", ""):
            with pytest.raises(PageNotFound, match="no such task"):
                found.logs(task)


@pytest.fixture
def goes_on() -> Iterator[threading.Event]:
    """Until it is set, what waits for it hangs, as a cluster may that is gone."""
    made = threading.Event()
    yield made
    made.set()
    for thread in threading.enumerate():
        if thread.name == "tony-page":
            thread.join(60)


def test_a_history_that_does_not_come(
    tony_home: Path, goes_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NameNode that takes connections and does not answer, say."""
    written(tony_home)
    monkeypatch.setattr(history, "PAGE_S", 0.2)
    monkeypatch.setattr(history, "read_job_history", lambda *place: goes_on.wait(60) and None)
    assert "was not read within 0.2 s: the cluster is slow" in refused()


def test_logs_that_do_not_come(
    tony_home: Path, goes_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there by then is shown, and what is missing named."""
    written(tony_home)
    stuck = threading.Event()
    skip_to_last = LogFile.skip_to_last

    def hang(file: LogFile, *bounds: Any) -> None:
        if file.name == "stderr":
            stuck.set()
            goes_on.wait(60)
        skip_to_last(file, *bounds)

    def read_until_stuck(deadline: float, read: Callable[[], None]) -> None:
        stuck.clear()
        threading.Thread(target=read, name="tony-page", daemon=True).start()
        assert stuck.wait(60)

    with job() as found:
        monkeypatch.setattr(LogFile, "skip_to_last", hang)
        monkeypatch.setattr(history, "read_within", read_until_stuck)
        for logs in (found.logs("worker:0"), found.last_lines()["worker:0"]):
            assert logs[0].lines == (f"the last epoch {EVIL}",)
            assert (logs[1].stream, logs[1].lines) == ("stderr", ())
            assert "did not come within 8 s" in logs[1].problem


def test_pages_whose_cluster_hangs_take_no_place_for_ever(
    goes_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_readers", threading.BoundedSemaphore(1))
    read: list[str] = []

    def hang() -> None:
        goes_on.wait(60)
        read.append("first")

    history.read_within(0.0, hang)  # its time is over already
    history.read_within(0.0, lambda: read.append("second"))
    assert read == []
    goes_on.set()
    history.read_within(time.monotonic() + 60, lambda: read.append("third"))
    assert read == ["first", "third"]

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="new thread"):
        patch.setattr(threading.Thread, "start", refuse)
        history.read_within(time.monotonic() + 60, lambda: read.append("fourth"))
    history.read_within(time.monotonic() + 60, lambda: read.append("fifth"))
    assert read == ["first", "third", "fifth"]


def test_the_job_of_another_task_instance_is_not_shown(tony_home: Path) -> None:
    """A user who may write XComs of one DAG may name any job there."""
    written(tony_home)
    for other in (
        TI_KEY._replace(dag_id="mine"),
        TI_KEY._replace(run_id="other"),
        TI_KEY._replace(task_id="other"),
        TI_KEY._replace(map_index=0),
    ):
        assert "with the tag of this task instance" in refused(other)


def test_a_job_without_tags_or_with_damaged_ones(tony_home: Path) -> None:
    for tags in (None, "x", [], [None, 3], {TI_KEY.tag: 1}):
        app_id = f"local_20260101000000_{len(str(tags)):06x}"
        written(tony_home, app_id=app_id, tags=tags)
        refused(application_id=app_id)


@pytest.mark.parametrize(
    "named",
    [None, "", ".", "..", "../x", "/etc", f"../history/{APP_ID}", f"{APP_ID}/", f"{APP_ID}\0", 3,
     [APP_ID], f"{APP_ID}/../{APP_ID}", APP_ID[:-1], f"file:{APP_ID}"],
)  # fmt: skip
def test_what_is_no_id_of_a_job(tony_home: Path, named: Any) -> None:
    written(tony_home)
    refused(application_id=named)


@pytest.mark.parametrize(
    "stored",
    [None, "local", {}, {"connection": "x"}, {"connection": 3},
     {"connection": "", "scheduler": "x"}, {"connection": {"host": "h"}, "scheduler": "local"}],
)  # fmt: skip
def test_an_xcom_leads_to_no_address_of_its_own(tony_home: Path, stored: Any) -> None:
    written(tony_home)
    refused(tony_connection=stored)


def test_only_a_connection_of_ours_is_used() -> None:
    def of(conn_type: Any) -> Any:
        made = {"conn_id": "c", "conn_type": conn_type, "host": None, "port": None, "login": None}
        return SimpleNamespace(**made, extra=json.dumps({"home": "/srv/tony"}), extra_dejson={})

    named = {"connection": "c", "scheduler": "local"}
    assert site_for(named, lambda conn_id: of("tony")).home == "/srv/tony"
    for conn_type in ("http", "", None):
        with pytest.raises(PageNotFound, match="not of the type"):
            site_for(named, lambda conn_id, kind=conn_type: of(kind))  # type: ignore[misc]


def test_xcoms_are_plain_json() -> None:
    assert plain_xcom('"a"') == plain_xcom(b'"a"') == "a"
    assert plain_xcom('{"a": 1}') == {"a": 1}
    assert plain_xcom("local_1") == "local_1"
    assert plain_xcom(b"\x80\x04K\x01.") == b"\x80\x04K\x01."
    assert plain_xcom(None) is None


@fuzz(by_day=100, data=mutations(json.dumps(XCOMS["tony_connection"]).encode()))
def test_any_xcom_value(data: bytes) -> None:
    try:
        site_for(plain_xcom(data), connections)
    except PageNotFound:
        pass


@fuzz(by_day=60, text=st.text(max_size=60))
def test_whatever_names_a_job(text: str) -> None:
    with pytest.raises(PageNotFound):
        RecordedJob(TI_KEY, {**XCOMS, "application_id": text}.get, connections).__enter__()
