"""The journal and master.json."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import List

import pytest

from tony_core.master.state.folder import LocalFolder, replace_file
from tony_core.master.state.journal import Journal, JournalContent, JournalError, write_master_file


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert Journal(str(tmp_path), 1).read() == JournalContent()


def test_the_next_attempt_reads_what_the_first_one_wrote(tmp_path: Path) -> None:
    first = Journal(str(tmp_path), 1)
    first.began(1000.0)
    first.write({"session": 2})
    first.address("c1", "node1:4000")
    first.address("c2", "node2:4000")
    first.forget("c1")
    assert first.dirty
    first.save()
    assert not first.dirty
    journal = Journal(str(tmp_path), 2).read()
    assert journal.attempt == 1
    assert journal.record == {"session": 2}
    assert journal.executors == {"c2": "node2:4000"}
    assert journal.began == 1000.0
    assert journal.end is None


def test_a_known_address_is_no_news(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1)
    journal.address("c1", "node1:4000")
    journal.save()
    journal.address("c1", "node1:4000")
    journal.forget("c9")
    assert not journal.dirty


def test_the_next_attempt_keeps_what_it_has_not_changed(tmp_path: Path) -> None:
    first = Journal(str(tmp_path), 1)
    first.address("c1", "node1:4000")
    first.write({"session": 0})
    second = Journal(str(tmp_path), 2)
    second.read()
    second.write({"session": 1})
    journal = Journal(str(tmp_path), 3).read()
    assert (journal.attempt, journal.record, journal.executors) == (
        2,
        {"session": 1},
        {"c1": "node1:4000"},
    )


def test_the_end_is_written_down(tmp_path: Path) -> None:
    Journal(str(tmp_path), 1).ended("FAILED", "worker:0 failed")
    journal = Journal(str(tmp_path), 2).read()
    assert journal.end == {"state": "FAILED", "diagnostics": "worker:0 failed"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":99}', '{"version":1,"attempt":1}'])
def test_a_journal_that_cannot_be_read_is_never_taken_for_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "journal.json").write_text(text)
    with pytest.raises(JournalError, match=r"journal\.json"):
        Journal(str(tmp_path), 2).read()


def test_it_is_private_and_replaced_whole(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1)
    journal.write({"parameters": "x" * 1000})
    journal.write({})
    path = tmp_path / "journal.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["record"] == {}
    assert [item.name for item in tmp_path.iterdir()] == ["journal.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    with pytest.raises(TypeError):
        replace_file(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_master_json_has_the_masters_address(tmp_path: Path) -> None:
    write_master_file(LocalFolder(str(tmp_path)), 2, "host", 4711, "http://host:80/", 10.0)
    assert json.loads((tmp_path / "master.json").read_text()) == {
        "attempt": 2,
        "host": "host",
        "port": 4711,
        "page_url": "http://host:80/",
        "kill_grace_s": 10.0,
    }


def test_no_address_has_preprocessing_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(str(tmp_path), 1)
    put: List[bool] = []
    monkeypatch.setattr(
        journal.folder, "put", lambda name, data, soon=False: put.append(soon), raising=False
    )
    journal.write({"session": 0})
    journal.write({"session": 0, "parameters": "token=1"})
    assert put == [True, False]
