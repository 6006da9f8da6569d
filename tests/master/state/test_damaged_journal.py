"""Journals and what stands beside them, damaged in every way: one error, or nothing taken over."""

from __future__ import annotations

import json
import signal
import zlib
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.fuzzing import fuzz, mutations
from tests.master.shell import ScriptedPool, a_job
from tests.master.test_main import context
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.history.reader import read_job
from tony_core.job.jsonfile import job_from_json, job_to_json
from tony_core.job.spec import Resources, Role
from tony_core.master.main import CannotStart, describe_kill, kill_reason, serve
from tony_core.master.main import read_job as read_staged_job
from tony_core.master.master import Master
from tony_core.master.session.events import ContainersInherited
from tony_core.master.session.machine import SessionMachine
from tony_core.master.state.journal import JOURNAL, Journal, JournalError, parse_journal
from tony_core.schedulers.container_pool import Container, MasterContext

RECORD: Dict[str, Any] = {
    "session": 1, "elapsed_s": 12.5, "parameters": None, "released": {"worker": 0},
    "budgets": {"user_used": 1, "system_used": 0, "restarts_in_row": 0, "furthest": 3.0,
                "reached": None, "last_quick": ["worker:0", 1, "killed"]},
    "started": ["worker"], "outside": [], "regrouping": False, "done": ["worker:1"],
    "untracked": ["worker"],
    "returning": [], "alone": {"worker:0": {"restarts": 1, "last_quick": None}},
    "chief_done": False, "outcome": None, "diagnostics": "", "root": {"task": "worker:0"},
    "result": "", "stalled": {"": ["worker:1", 2]},
}  # fmt: skip
WHOLE: Dict[str, Any] = {
    "version": 1, "attempt": 1, "record": RECORD, "executors": {"c1": "node1:4000"},
    "end": {"state": "FAILED", "diagnostics": "it broke"}, "began": 1000.5,
}  # fmt: skip
SAMPLE = json.dumps(WHOLE, separators=(",", ":")).encode()
RUNNING = json.dumps({**WHOLE, "end": None}, separators=(",", ":")).encode()
JOB = a_job(Role("worker", 2, Resources(), "true"))
DEEP = b"[" * 200_000

BROKEN = [
    b"", b"{", b"\0" * 64, b"\xff\xfe", b"[]", b"null", b"1", DEEP, b'{"a":' * 200_000,
    SAMPLE[: len(SAMPLE) // 2], SAMPLE.replace(b'"version":1', b'"version":[]'),
    SAMPLE.replace(b'"attempt":1', b'"attempt":1e999'),
    SAMPLE.replace(b'"attempt":1', b'"attempt":"1"'),
    SAMPLE.replace(b'"executors":{"c1":"node1:4000"}', b'"executors":["c1"]'),
    SAMPLE.replace(b'"session":1', b'"session":"one"'),
    SAMPLE.replace(b'"session":1', b'"session":1e999'),
    SAMPLE.replace(b'"session":1,', b""),
    SAMPLE.replace(b'"session":1', b'"session":' + b"9" * 5000),
    SAMPLE.replace(b"12.5", b"NaN"), SAMPLE.replace(b'"FAILED"', b'"BROKEN"'),
    SAMPLE.replace(b'"FAILED"', b"[]"), SAMPLE.replace(b'["worker"]', b"[[]]"),
    SAMPLE.replace(b'{"worker":0}', b'{"worker":"x"}'),
    SAMPLE.replace(b'{"restarts":1,"last_quick":null}', b"{}"),
    SAMPLE.replace(b'{"":["worker:1",2]}', b"[]"), SAMPLE.replace(b'["worker:1",2]', b'"x"'),
    SAMPLE.replace(b'["worker:1",2]', b'["x","y"]'), SAMPLE.replace(b'["worker:1",2]', b"[]"),
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_journal_is_one_error_that_names_it(tmp_path: Path, data: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(data)
    with pytest.raises(JournalError, match=r"journal\.json: .+"):
        Journal(str(tmp_path), 2).read()


@pytest.mark.parametrize("data", BROKEN[:10], ids=range(10))
def test_a_next_master_begins_anew_where_the_journal_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(Master, "_launch", lambda self, command: self.kill("it was enough"))
    where = context(tmp_path, JOB)._replace(attempt=2)
    (tmp_path / JOURNAL).write_bytes(data)
    assert serve(where, ScriptedPool(attempt=2)) == 0
    texts = [event["text"] for event in read_job(str(tmp_path / "history"), "app_1").events]
    assert any("journal cannot be read" in text and JOURNAL in text for text in texts)
    assert any("starts the job again" in text for text in texts)


def test_a_whole_journal_is_read() -> None:
    journal = parse_journal(SAMPLE)
    assert (journal.attempt, journal.record, journal.began) == (1, RECORD, 1000.5)


def _taken_over(record: Any) -> None:
    machine = SessionMachine(JOB, 0.1)
    held = (Container("c1", "n", "worker", Resources()),)
    machine.handle(ContainersInherited(held, record), 50.0)
    machine.validate()


@fuzz(data=mutations(SAMPLE, RUNNING, json.dumps({**WHOLE, "record": {}}).encode()))
def test_any_journal_is_taken_over_or_refused(data: bytes) -> None:
    try:
        journal = parse_journal(data)
    except ValueError:
        return
    _taken_over(journal.record)


@fuzz(data=mutations(b'{"reason": "killed by ann", "by": "ann", "at": 12.5}', b"[]", b'"x"'))
def test_any_kill_file_gives_a_reason(data: bytes) -> None:
    from tony_core.jsontext import read_value

    try:
        value = read_value(data)
    except ValueError:
        value = None
    assert describe_kill(value, signal.SIGTERM)


@pytest.mark.parametrize("data", [b"", DEEP, b"\xff", b"[]", b'{"reason": [1]}', b"x" * 70_000])
def test_a_damaged_kill_file_is_a_kill_without_its_reason(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "kill.json"
    path.write_bytes(data)
    assert kill_reason(str(path), signal.SIGTERM)


@fuzz(data=mutations(job_to_json(JOB).encode()))
def test_any_job_json_is_a_job_or_refused(data: bytes) -> None:
    try:
        job_from_json(data.decode())
    except ValueError:
        pass


_ARTIFACT = Artifact("src", Use.SOURCE, Kind.ARCHIVE, "/x", "file:///x", roles=("worker",))


@fuzz(data=mutations(json.dumps([_ARTIFACT.to_json()]).encode(), b"[[]]"))
def test_any_list_of_artifacts_is_one_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-artifacts" / "apps" / "app_1" / "job"
    if not folder.exists():
        context(folder.parents[2], JOB)
    (folder / "artifacts.json").write_bytes(data)
    where = MasterContext("app_1", 1, str(folder), "", "", "", b"")
    try:
        _, artifacts, _ = read_staged_job(where)
        assert all(artifact.wanted_by("worker") in (True, False) for artifact in artifacts)
        json.dumps([artifact.to_json() for artifact in artifacts])
    except CannotStart:
        pass


@pytest.mark.parametrize(
    ("name", "data"),
    [("job.json", b""), ("job.json", DEEP), ("job.json", b"\xff"), ("artifacts.json", b"{}1"),
     ("artifacts.json", DEEP), ("artifacts.json", b"[1]"), ("artifacts.json", b'[{"name": 1}]')],
)  # fmt: skip
def test_a_damaged_job_folder_ends_the_job_with_one_message(
    tmp_path: Path, name: str, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    where = context(tmp_path, JOB)
    (Path(where.job_dir) / name).write_bytes(data)
    pool = ScriptedPool()
    assert serve(where, pool) == 0
    assert pool.finished is not None and "staged job cannot be read" in pool.finished[1]
    assert "Traceback" not in capsys.readouterr().err


def test_a_damaged_note_of_a_journal_is_a_journal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(name: str) -> bytes:
        return zlib.decompress(b"no such thing")

    journal = Journal("/nowhere", 2)
    monkeypatch.setattr(journal.folder, "get", get)
    with pytest.raises(JournalError):
        journal.read()
