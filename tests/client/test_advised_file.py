"""The job file of a run, and the one with the advice: found, checked, written anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.advice.findings import MEMORY
from tests.advice.test_apply import FILE, ran, with_changes
from tony_core.client.advised_file import advised_name, apply_to_file, write_new
from tony_core.client.errors import UsageError
from tony_core.client.submission import Frameworks
from tony_core.job.load import JobArguments, load_job
from tony_core.job.problems import JobError


@pytest.fixture
def job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TONY_CONF_DIR", raising=False)
    path = tmp_path / "tony.xml"
    path.write_bytes(FILE)
    return path


def test_the_file_that_is_named_is_changed_and_nothing_is_written(job_file: Path) -> None:
    done = apply_to_file(str(job_file), [MEMORY], b"")
    assert done.applied.data == FILE.replace(b"8g", b"3g") and done.is_changed
    assert [path.name for path in job_file.parent.iterdir()] == ["tony.xml"]


def test_only_warnings_that_are_new_are_given(job_file: Path) -> None:
    more = b"<property><name>tony.worker.resources</name><value>/nowhere/x</value></property>"
    job_file.write_bytes(FILE.replace(b"</configuration>", more + b"</configuration>"))
    assert apply_to_file(str(job_file), [MEMORY], b"").warnings == ()
    advice = [with_changes(("tony.worker.resources", "/nowhere/y"))]
    (warning,) = apply_to_file(str(job_file), advice, b"").warnings
    assert "/nowhere/y" in str(warning)


def rows(name: str) -> Any:
    return (("tony.worker.instances", "4", f"{name}:2"), ("tony.worker.memory", "8g", f"{name}:3"))


def test_without_a_name_it_is_the_file_of_the_run(job_file: Path) -> None:
    for name in (str(job_file), "tony.xml"):
        assert apply_to_file("", [MEMORY], ran(*rows(name))).path == name


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (b"", "names none"),
        (ran(*rows("/nowhere/tony.xml")), "not on this machine"),
        (ran(*rows("hdfs://nn/tony.xml")), "copy it to this machine"),
        (ran(*rows("a.xml"), ("x", "1", "b.xml:1")), "names a.xml, b.xml"),
        (ran(*rows("tony.xml"), ("tony.ps.memory", "1g", "tony.xml:9")), "tony.ps.memory differs"),
    ],
)
def test_else_it_is_asked_for(job_file: Path, config: bytes, wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted) as caught:
        apply_to_file("", [MEMORY], config)
    assert "--apply FILE" in str(caught.value)


def test_a_result_that_no_submit_would_take_is_refused(job_file: Path) -> None:
    with pytest.raises(JobError, match=r"tony\.worker\.memory"):
        apply_to_file(str(job_file), [with_changes(("tony.worker.memory", "lots"))], b"")
    with pytest.raises(JobError, match="unknown key"):
        apply_to_file(str(job_file), [with_changes(("tony.worker.memry", "1g"))], b"")
    job_file.write_bytes(b"<configuration>")
    with pytest.raises(UsageError, match="well-formed"):
        apply_to_file(str(job_file), [MEMORY], b"")


def test_what_only_the_command_line_sets_counts_in_the_check(job_file: Path) -> None:
    job_file.write_bytes(FILE.replace(b"tony.worker.instances", b"tony.ps.instances"))
    with pytest.raises(JobError, match="instances"):
        apply_to_file(str(job_file), [MEMORY], b"")
    config = ran(("tony.worker.instances", "4", "--conf"))
    assert apply_to_file(str(job_file), [MEMORY], config).is_changed


def test_a_key_that_the_site_seals_is_left_out(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = job_file.parent / "site"
    site.mkdir()
    (site / "tony-site.xml").write_text(
        "<configuration><property><name>tony.worker.vcores</name><value>1</value>"
        "<final>true</final></property></configuration>"
    )
    monkeypatch.setenv("TONY_CONF_DIR", str(site))
    done = apply_to_file(str(job_file), [with_changes(("tony.worker.vcores", "2")), MEMORY], b"")
    assert "tony.worker.vcores is final in" in done.applied.refused[0]
    assert done.applied.data == FILE.replace(b"8g", b"3g")


def test_no_file_is_overwritten(job_file: Path) -> None:
    job_file.chmod(0o640)
    target = advised_name(str(job_file))
    assert target.endswith("/tony.advised.xml")
    write_new(target, b"new", str(job_file))
    assert os.stat(target).st_mode & 0o777 == 0o640 & ~_umask()
    for name in (target, str(job_file)):
        with pytest.raises(UsageError, match="not overwritten"):
            write_new(name, b"other", str(job_file))
    assert Path(target).read_bytes() == b"new" and job_file.read_bytes() == FILE
    link = job_file.parent / "link"
    link.symlink_to(job_file.parent / "nowhere")
    with pytest.raises(UsageError):
        write_new(str(link), b"new", str(job_file))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


MEMORIES = st.integers(256, 9000).map(lambda mb: f"{mb}m")
NUMBERS = st.integers(1, 40).map(str)
FILLED = {
    "tony.worker.memory": MEMORIES,
    "tony.worker.vcores": NUMBERS,
    "tony.ps.memory": MEMORIES,
    "tony.am.memory": MEMORIES,
    "tony.am.retry-count": NUMBERS,
    "tony.task.heartbeat-interval-ms": st.integers(500, 5000).map(str),
}


def some(most: int) -> st.SearchStrategy[Dict[str, str]]:
    return st.fixed_dictionaries({}, optional=FILLED).map(lambda d: dict(list(d.items())[:most]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(some(6), some(4))
def test_the_job_differs_in_exactly_the_keys_that_were_changed(
    job_file: Path, own: Dict[str, str], changes: Dict[str, str]
) -> None:
    own = {"tony.worker.instances": "2", "tony.ps.instances": "1", **own}
    properties = "".join(
        f"<property><name>{key}</name>\n<!-- {key} --><value>{value}</value></property>\n"
        for key, value in own.items()
    )
    job_file.write_text(f"<configuration>\n{properties}</configuration>")
    done = apply_to_file(str(job_file), [with_changes(*changes.items())], b"")

    def loaded(path: Path) -> Dict[str, str]:
        arguments = JobArguments(conf_file=str(path))
        job = load_job(arguments, frameworks=Frameworks(), needs_command=False).job
        return {item.key: item.value for item in job.settings}

    before = loaded(job_file)
    target = job_file.parent / "new.xml"
    target.write_bytes(done.applied.data)
    assert loaded(target) == {**before, **changes}
