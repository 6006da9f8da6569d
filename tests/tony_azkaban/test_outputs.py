"""What next jobs may use."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.fuzzing import bounds, fuzz, mutations
from tony_azkaban.folder import named_in_flow, names_in
from tony_azkaban.outputs import inert, metrics, outputs, write
from tony_core.job.spec import Job, Resources, Role
from tony_core.schedulers.port import AppState
from tony_core.view import JobView, TaskView

JOB = Job("train", (Role("worker", 2, Resources(), "true"),))
VIEW = JobView(
    "local_1",
    AppState.SUCCEEDED,
    "history",
    submitted=100.0,
    finished=112.5,
    tasks=(
        TaskView("worker:1", reported={"loss": 0.5, "rank": 1.0}),
        TaskView("worker:0", reported={"loss": 0.25}),
    ),
)


def test_the_chiefs_word_comes_first() -> None:
    assert metrics(VIEW, JOB) == {"loss": 0.25, "rank": 1.0}


def test_flat_texts_with_and_without_the_jobs_name() -> None:
    produced = outputs(VIEW, JOB, "train", "/history/local_1", {"tensorboard": "http://node:6006/"})
    assert produced["tony_result.duration_s"] == "12.5"
    assert produced["tony_result.tensorboard_url"] == "http://node:6006/"
    assert produced["tony_result.history_url"] == "/history/local_1"
    assert (
        produced["tony_result.metrics.loss"] == produced["tony_result.train.metrics.loss"] == "0.25"
    )
    assert (
        produced["tony_result.value"] == produced["tony_result.train.value"] == ""
    )  # it gave none
    assert all(isinstance(text, str) for text in produced.values())


def test_with_a_portal_its_addresses_lead_there() -> None:
    """TensorBoard ended with the job; the portal starts it again."""
    view = VIEW._replace(links={"portal": "http://portal/jobs/local_1"})
    produced = outputs(view, JOB, "train", "/history/local_1", {"tensorboard": "http://node:6006/"})
    assert produced["tony_result.history_url"] == "http://portal/jobs/local_1"
    assert produced["tony_result.tensorboard_url"] == "http://portal/jobs/local_1/tensorboard"
    without = outputs(view, JOB, "train", "/history/local_1", {})
    assert without["tony_result.tensorboard_url"] == "", "it had none"


def test_a_job_of_a_flow_within_a_flow_has_its_own_name(tmp_path: Path) -> None:
    """The same files run alone and in another flow; the whole path stays as another name."""
    names = {"tony_result.train.metrics.auc"}
    produced = outputs(VIEW, JOB, "nightly:train", "", {}, names)
    for job in ("train", "nightly:train"):
        assert produced[f"tony_result.{job}.outcome"] == "SUCCEEDED"
        assert produced[f"tony_result.{job}.metrics.loss"] == "0.25"
    assert produced["tony_result.train.metrics.auc"] == ""


@pytest.mark.parametrize(
    ("value", "text"), [("text", "text"), ({"a": [1]}, '{"a": [1]}'), (0, "0"), (None, "")]
)
def test_the_result(value: Any, text: str | None) -> None:
    produced = outputs(VIEW._replace(result=value), JOB, "train", "", {})
    assert produced.get("tony_result.value") == text


def test_what_the_flow_names_and_nothing_gave_is_empty(tmp_path: Path) -> None:
    """A server of any version fails a job that names a property that is not there."""
    folder = tmp_path / "executions" / "12" / "sub"
    folder.mkdir(parents=True)
    (folder.parent / "next.job").write_text(
        "command=echo ${tony_result.metrics.auc} ${tony_result.train.metrics.f1} ${own}\n"
        "a=${tony_result.other.metrics.loss} ${tony_result.metrics.loss} $tony_result.metrics.x\n"
    )
    (folder / "flow.flow").write_text("condition: ${train:tony_result.metrics.recall} > 0\n")
    (folder / "data.csv").write_text("${tony_result.metrics.data}")
    (folder / "loop").symlink_to(folder.parent)
    names = named_in_flow(str(folder), "12")
    assert names == {
        "tony_result.metrics.auc",
        "tony_result.train.metrics.f1",
        "tony_result.other.metrics.loss",
        "tony_result.metrics.loss",
        "tony_result.metrics.recall",
    }
    produced = outputs(VIEW, JOB, "train", "", {}, names)
    assert produced["tony_result.metrics.loss"] == "0.25"
    assert produced["tony_result.metrics.auc"] == produced["tony_result.train.metrics.f1"] == ""
    assert produced["tony_result.metrics.recall"] == ""
    assert "tony_result.other.metrics.loss" not in produced  # another job gives it, or does not


def test_only_the_executions_own_folder_is_looked_through(tmp_path: Path) -> None:
    (tmp_path / "other.job").write_text("a=${tony_result.metrics.x}")
    (tmp_path / "12").mkdir()
    assert named_in_flow(str(tmp_path / "12"), "12") == set()
    assert named_in_flow(str(tmp_path / "gone"), "12") == set()
    assert named_in_flow(str(tmp_path / "12"), "") == set()


def test_a_working_folder_elsewhere_is_not_searched_in_depth(tmp_path: Path) -> None:
    """``working.dir`` may be the root of a file system."""
    (tmp_path / "projects" / "other").mkdir(parents=True)
    (tmp_path / "projects" / "other" / "x.job").write_text("a=${tony_result.metrics.theirs}")
    (tmp_path / "own.job").write_text("a=${tony_result.metrics.own}")
    assert named_in_flow(str(tmp_path), "12") == {"tony_result.metrics.own"}


def test_a_large_project_is_looked_through_in_good_time(tmp_path: Path) -> None:
    (tmp_path / "huge.properties").write_bytes(b"${tony_result." * 300_000)
    for number in range(50):
        (tmp_path / f"{number}.job").write_text(f"a=${{tony_result.metrics.m{number}}}")
    with bounds(2.0):
        assert len(named_in_flow(str(tmp_path), "")) == 50


@fuzz(data=mutations(b"a=${tony_result.x} ${train:tony_result.train.metrics.y}\n"))
def test_any_bytes_of_a_job_file(data: bytes) -> None:
    for name in names_in(data):
        assert name.startswith("tony_result.") and "}" not in name


ATTACKS = [
    '$("".getClass().forName("java.lang.Runtime"))',
    "${word}",
    "${azkaban.flow.execid}",
    "$('$')(1+1)",
    "\\$(1+1)",
    "' + exit() + '",
    "ends in a backslash\\",
    "a line\n22-11-2026 INFO - of the log\x1b]0;x\x07\u2028",
]
ACTIVE = re.compile(r"[$'\x00-\x1f\x7f-\x9f\u2028\u2029]")
DANGLING = re.compile(r"(?:[^\\]|\\.)*\\", re.DOTALL)


def all_of(value: str) -> dict[str, str]:
    """The outputs of a program that gives this text wherever it can."""
    view = VIEW._replace(
        result=value,
        links={"portal": value},
        tasks=(TaskView("worker:0", reported={value: 1.0}),),
    )
    return outputs(view, JOB, value, value, {"tensorboard": value})


def assert_inert(produced: dict[str, str]) -> None:
    """Nothing for Azkaban to evaluate, and no name but ours."""
    for key, text in produced.items():
        assert key.startswith("tony_result.")
        assert not ACTIVE.search(key), key
        assert not ACTIVE.search(text), text
        assert not DANGLING.fullmatch(text), text


@pytest.mark.parametrize("value", ATTACKS)
def test_no_output_of_a_program_is_evaluated(value: str) -> None:
    produced = all_of(value)
    assert_inert(produced)
    for given in ({"a": [value]}, [value], {value: None}):
        produced = outputs(VIEW._replace(result=given), JOB, "train", "", {})
        assert_inert(produced)
        assert json.loads(produced["tony_result.value"]) == given  # what was given, to the letter


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hdfs:///models/a_b-1.5 (best)", "hdfs:///models/a_b-1.5 (best)"),
        ("größe 🦆", "größe 🦆"),
        ("$5", r"\u00245"),
        ("it's", r"it\u0027s"),
        ("a\\b", r"a\u005cb"),
    ],
)
def test_what_stands_for_a_text(text: str, shown: str) -> None:
    assert inert(text) == shown
    assert re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), shown) == text


@pytest.mark.parametrize(
    "name", ["env.LD_PRELOAD", "command", "type", "user.to.proxy", "azkaban.flow.execid", "a\nb=c"]
)
def test_no_name_that_a_program_chooses_is_a_property_of_the_next_job(name: str) -> None:
    produced = all_of(name)
    assert_inert(produced)
    assert name not in produced


@fuzz(value=st.text(st.sampled_from("$({})'\"\\ \n\r\x85\u2028\ud800aé🦆u0024"), max_size=40))
def test_no_text_is_evaluated(value: str) -> None:
    assert_inert(all_of(value))
    assert_inert(outputs(VIEW._replace(result={value: value}), JOB, "train", "", {}))
    shown = inert(value)
    assert re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), shown) == value


def test_any_text_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write(str(path), {"a": "größe 🦆 \ud800"})
    assert json.loads(path.read_bytes().decode("ascii")) == {"a": "größe 🦆 \ud800"}
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["out.json"]


def test_the_servers_file_stays_its_file(tmp_path: Path) -> None:
    """It may belong to the server's group, where the job runs as another user."""
    path = tmp_path / "out.json"
    path.touch(0o660)
    path.chmod(0o660)
    before = path.stat()
    write(str(path), {"a": "b"})
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("as it was")
    os.symlink(tmp_path / "other", tmp_path / "out.json")
    with pytest.raises(OSError):
        write(str(tmp_path / "out.json"), {"a": "b"})
    assert (tmp_path / "other").read_text() == "as it was"
