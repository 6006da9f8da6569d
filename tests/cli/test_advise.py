"""``tony advise``: what a job could change, and its job file with the changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.advice.findings import INPUT, MEMORY, stand_in
from tests.advice.test_apply import FILE, ran, with_changes
from tests.cli.conftest import Tony, scripted, tony
from tests.cli.schema import wrong_with
from tests.cli.test_compare import keep
from tests.client.scripted import Scripted
from tests.history.test_compare import trained

__all__ = ["scripted", "tony"]


@pytest.fixture
def place(tmp_path: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history with a job that has ended, one that runs, and one of which little is known."""
    root = tmp_path / "elsewhere"
    done = trained(5, [5.0] * 40)
    keep(root, "app_done", done, "8g")
    running = {**done.job, "finished": None, "state": "RUNNING"}
    keep(root, "app_runs", done._replace(job=running), "8g")
    keep(root, "app_thin", trained(5, [])._replace(metrics={}))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tony.xml").write_bytes(FILE)
    return root


def test_the_worst_first_with_all_that_is_known(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY, INPUT)
    done = tony("advise", "app_d", "--history", str(place))
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "severe: worker: asks for 8 GB of memory and never used more than 2.1 GB",
        "  evidence: asked (GB) 8, used at most (GB) 2.1",
        "  do: ask for less memory",
        "  change: tony.worker.memory: 8g -> 3g",
        "  saves: 12 GB hours of memory, 1 min 20 s",
        "",
        "low: the GPUs wait for data 40 % of the time",
        "  do: read ahead",
    ]
    assert done.err == "tony: app_done\n"


def test_without_advice_there_is_nothing_to_change(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch)
    done = tony("advise", "app_done", "--history", str(place))
    assert (done.code, done.out, done.err) == (0, "nothing to change\n", "")


def test_a_running_job_and_thin_evidence_are_named(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch)
    done = tony("advise", "app_runs", "--history", str(place))
    assert done.out == "nothing to change so far\n" and "still running" in done.err
    done = tony("advise", "app_thin", "--history", str(place))
    assert "nothing was measured" in done.err and "configuration was not kept" in done.err


def test_the_same_as_json(tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MEMORY, INPUT)
    done = tony("advise", "app_done", "--history", str(place), "--json")
    data = json.loads(done.out)
    assert wrong_with(data, "advise") == []
    assert data["app_id"] == "app_done" and data["running"] is False
    first = data["advice"][0]
    assert first["changes"] == [{"key": "tony.worker.memory", "value": "3g", "was": "8g"}]
    assert first["saving"] == {"memory_gb_hours": 12.0, "duration_s": 80.0}


def test_hostile_texts_do_not_drive_a_terminal(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = "\x1b]0;x\x07\u202e\n"
    advice = MEMORY._replace(
        problem=bad, about=bad, todo=bad, severity=bad, evidence={bad: bad}, saving={bad: 1.0},
        changes=(MEMORY.changes[0]._replace(was=bad, value=bad),),
    )  # fmt: skip
    stand_in(monkeypatch, advice)
    done = tony("advise", "app_done", "--history", str(place))
    assert done.code == 0
    assert not any(mark in done.out for mark in "\x1b\x07\u202e")
    assert len(done.out.splitlines()) == 5, "no line feed of theirs"


def apply(tony: Tony, place: Path, *words: str) -> Any:
    return tony("advise", "app_done", "--history", str(place), "--apply", *words)


def test_the_job_file_with_the_changes_stands_beside(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY, INPUT)
    done = apply(tony, place, "tony.xml")
    assert done.code == 0, done.err
    assert done.out == "tony.worker.memory: 8g -> 3g\n"
    assert done.err.endswith("tony: written: tony.advised.xml\n")
    assert Path("tony.advised.xml").read_bytes() == FILE.replace(b"8g", b"3g")
    assert Path("tony.xml").read_bytes() == FILE
    again = apply(tony, place, "tony.xml")
    assert again.code == 2 and "exists already" in again.err and "--output" in again.err
    other = apply(tony, place, "tony.xml", "--output", "other.xml")
    assert other.code == 0 and Path("other.xml").exists()


def test_a_dry_run_prints_a_diff_and_writes_nothing(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY)
    done = apply(tony, place, "tony.xml", "--dry-run")
    assert done.code == 0
    rows = done.out.splitlines()
    assert rows[:2] == ["--- tony.xml", "+++ tony.advised.xml"]
    assert [row for row in rows[2:] if row.startswith("-")] == [
        "-  <property><name>tony.worker.memory</name><value>8g</value></property>"
    ]
    assert [row for row in rows[2:] if row.startswith("+")] == [
        "+  <property><name>tony.worker.memory</name><value>3g</value></property>"
    ]
    assert not Path("tony.advised.xml").exists()


def test_as_json_with_the_diff(tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MEMORY)
    for words, written in ((("--dry-run",), ""), ((), "tony.advised.xml")):
        data = json.loads(apply(tony, place, "tony.xml", "--json", *words).out)
        assert wrong_with(data, "advise") == []
        assert data["applied"]["written"] == written and "+++" in data["applied"]["diff"]
    stand_in(monkeypatch)
    data = json.loads(apply(tony, place, "tony.xml", "--json").out)
    assert wrong_with(data, "advise") == [] and data["applied"]["file"] == ""


def test_the_file_of_the_run_needs_no_name(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY)
    done = apply(tony, place)
    assert done.code == 2 and "name the job file" in done.err
    file = str(Path("tony.xml").absolute())
    rows = [("tony.worker.instances", "4", f"{file}:2"), ("tony.worker.memory", "8g", f"{file}:3")]
    (place / "app_done" / "tony-final.xml").write_bytes(ran(*rows))
    done = apply(tony, place)
    assert done.code == 0, done.err
    assert Path("tony.advised.xml").exists()


def advise_of_a_sealed_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, with_changes(("tony.worker.vcores", "2")))
    row = ("tony.worker.vcores", "8", "/etc/tony/tony-site.xml:4")
    config = ran(row, final="tony.worker.vcores")
    (place / "app_done" / "tony-final.xml").write_bytes(config)


def test_a_refused_key_leaves_no_file_and_an_exit_code(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advise_of_a_sealed_key(place, monkeypatch)
    done = apply(tony, place, "tony.xml")
    assert done.code == 2 and "is final in /etc/tony/tony-site.xml:4" in done.err
    assert not Path("tony.advised.xml").exists()


def test_advice_that_changes_no_key_writes_no_file(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, INPUT)
    done = apply(tony, place, "tony.xml")
    assert done.code == 0 and "no job file is written" in done.err


@pytest.mark.parametrize(
    "app_id", ["local_20261127052942_ab12cd", "local_2026", "application_1700000000000_0001"]
)
def test_an_id_in_the_place_of_the_file_is_refused(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch, app_id: str
) -> None:
    stand_in(monkeypatch)
    done = tony("advise", "--apply", app_id, "--history", str(place))
    assert done.code == 2 and f"tony advise {app_id} --apply" in done.err
    Path(app_id).write_bytes(FILE)
    assert tony("advise", "--apply", app_id, "--history", str(place)).code == 0


def test_the_id_of_the_newest_job_is_printed_with_a_job_file_too(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY)
    done = tony("advise", "--history", str(place), "--apply", "tony.xml")
    assert done.code == 0 and done.err.startswith("tony: app_"), done.err


@pytest.mark.parametrize("words", [("nofile.xml",), ("src",), ("tony.xml/x",), ("x" * 300,)])
def test_a_job_file_that_cannot_be_read_is_a_bad_command_line(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch, words: Any
) -> None:
    Path("src").mkdir()
    for advice in ((), (MEMORY,)):
        stand_in(monkeypatch, *advice)
        done = apply(tony, place, *words)
        assert done.code == 2 and f"{words[0]}: cannot be read" in done.err
        done = tony("advise", "--history", str(place), "--apply", *words)
        assert done.code == 2 and "tony advise ID --apply" in done.err


@pytest.mark.parametrize(
    "target", ["nodir/x.xml", "tony.xml/x", "x" * 300, "src", "hdfs://nn/x.xml"]
)
def test_a_copy_that_cannot_be_written_is_a_bad_command_line(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    Path("src").mkdir()
    stand_in(monkeypatch, MEMORY)
    done = apply(tony, place, "tony.xml", "--output", target)
    assert done.code == 2 and target in done.err and "--output" in done.err
    assert sorted(path.name for path in Path().iterdir() if path.suffix) == ["tony.xml"]


def test_a_file_url_is_a_file_of_this_machine(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY)
    assert apply(tony, place, f"file://{Path('tony.xml').absolute()}").code == 0
    assert Path("tony.advised.xml").exists()


def test_the_copy_on_standard_output(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY)
    Path("tony.xml").write_bytes(FILE.replace(b"\n", b"\r\n"))
    done = apply(tony, place, "tony.xml", "--output", "-")
    assert done.code == 0 and "tony.worker.memory: 8g -> 3g" in done.err
    assert done.out.encode() == FILE.replace(b"\n", b"\r\n").replace(b"8g", b"3g")
    assert not Path("-").exists()
    for option in ("--json", "--dry-run"):
        done = apply(tony, place, "tony.xml", "--output", "-", option)
        assert done.code == 2 and option in done.err


@pytest.mark.parametrize("advice", [(), (INPUT,), (MEMORY,)])
def test_a_file_with_nothing_to_change_is_printed_as_it_is(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch, advice: Any
) -> None:
    data = FILE.replace(b"8g", b"3g")  # what MEMORY asks for
    Path("tony.xml").write_bytes(data)
    stand_in(monkeypatch, *advice)
    done = apply(tony, place, "tony.xml", "--output", "-")
    assert (done.code, done.out.encode()) == (0, data), done.err
    assert "tony.xml is not changed" in done.err


@pytest.mark.parametrize("advice", [(), (MEMORY,)])
def test_without_a_file_to_print_it_is_asked_for(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch, advice: Any
) -> None:
    stand_in(monkeypatch, *advice)
    done = apply(tony, place, "--output", "-")
    assert (done.code, done.out) == (2, "") and "name the job file" in done.err


def test_refused_changes_print_no_file(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advise_of_a_sealed_key(place, monkeypatch)
    done = apply(tony, place, "tony.xml", "--output", "-")
    assert (done.code, done.out) == (2, "") and "is final" in done.err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--apply", ""), "--apply"),
        (("--apply=",), "--apply"),
        (("--apply", "tony.xml", "--output", ""), "--output"),
        (("--output", ""), "--output"),
    ],
)
def test_an_empty_name_of_a_file_is_refused(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch, words: Any, option: str
) -> None:
    stand_in(monkeypatch, MEMORY)
    file = str(Path("tony.xml").absolute())
    (place / "app_done" / "tony-final.xml").write_bytes(ran(("tony.worker.memory", "8g", file)))
    done = tony("advise", "app_done", "--history", str(place), *words)
    assert done.code == 2 and f"{option}: the name of the file is empty" in done.err
    assert not Path("tony.advised.xml").exists()


@pytest.mark.parametrize("option", [("--dry-run",), ("--output", "x.xml")])
def test_options_of_the_job_file_need_one(tony: Tony, place: Path, option: Any) -> None:
    done = tony("advise", "app_done", "--history", str(place), *option)
    assert done.code == 2 and f"{option[0]} needs --apply" in done.err


def test_status_and_describe_name_it_in_a_line_once_the_job_has_ended(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY, INPUT)
    for verb in ("status", "describe"):
        done = tony(verb, "app_done", "--history", str(place))
        assert "  advice: 2 (1 severe): tony advise app_done\n" in done.out, done.err
        assert "advice" not in tony(verb, "app_runs", "--history", str(place)).out
    stand_in(monkeypatch)
    assert "advice" not in tony("status", "app_done", "--history", str(place)).out


def test_a_fault_in_the_advice_costs_that_line_only(
    tony: Tony, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tony_core.advice import report

    monkeypatch.setattr(report, "advise", lambda record, config: 1 / 0)
    done = tony("status", "app_done", "--history", str(place))
    assert done.code == 0 and "advice" not in done.out and done.err == ""
