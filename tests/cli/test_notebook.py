"""The job that ``tony notebook`` makes of its options."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Dict, Tuple

import pytest

from tests.client.scripted import APP, Scripted, status
from tony_core import schedulers
from tony_core.cli.interrupts import Interrupts
from tony_core.cli.notebook import _serve, add_arguments, load_notebook, run
from tony_core.client.errors import UsageError
from tony_core.client.notebook import listen_here
from tony_core.job.problems import JobError
from tony_core.job.spec import Job
from tony_core.schedulers.port import SchedulerError


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def job_of(*words: str) -> Job:
    return load_notebook(arguments(*words)).job


def test_the_container_has_the_size_and_the_image_that_were_asked_for() -> None:
    job = job_of("--memory", "8g", "--vcores", "3", "--gpus", "2", "--image", "jupyter:4")
    (role,) = job.roles
    assert (role.name, role.instances) == ("notebook", 1)
    size = role.resources
    assert (size.memory_mb, size.vcores, size.gpus) == (8192, 3, 2)
    assert role.docker is not None and role.docker.image == "jupyter:4"
    assert shlex.split(role.command)[:3] == ["python3", "-m", "tony_notebook"]
    assert job_of().roles[0].docker is None


@pytest.mark.parametrize(
    ("words", "lease_s", "first_s"),
    [
        ((), 3600.0, 300.0),
        (("--idle-timeout", "10m"), 600.0, 300.0),
        (("--idle-timeout", "10s"), 300.0, 300.0),
        (("--idle-timeout", "0"), 3600.0, 300.0),
        (("--idle-timeout", "8h"), 3600.0, 300.0),
        (("--gpus", "0"), 3600.0, 300.0),
        (("--gpus", "4"), 600.0, 300.0),
        (("--gpus", "4", "--idle-timeout", "8h"), 600.0, 300.0),
        (("--gpus", "4", "--idle-timeout", "6m"), 360.0, 300.0),
        (("--conf", "tony.notebook.gpus=1"), 600.0, 300.0),
        (("--gpus", "4", "--conf", "tony.client.lease=16h"), 16 * 3600.0, 300.0),
        (("--conf", "tony.client.lease=90s"), 90.0, 300.0),
        (("--detach",), 0.0, 0.0),
    ],
)
def test_how_long_a_client_may_be_away(
    words: tuple[str, ...], lease_s: float, first_s: float
) -> None:
    times = job_of(*words).timeouts
    assert (times.client_lease_s or 0.0, times.client_first_lease_s or 0.0) == (lease_s, first_s)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--memory", "2g", "--gpus", "0"), "--memory, --gpus: "),
        (("--detach", "--idle-timeout", "1h"), "--idle-timeout, --detach: "),
        (("--conf", "tony.yarn.queue=a", "--src_dir", "x", "--notebook-dir", "/d"),
         "--src_dir, --notebook-dir, --conf: "),
        (("--venv", "v.zip", "--image", "i", "--vcores", "2", "--python_binary_path", "python3"),
         "--vcores, --image, --python_venv, --python_binary_path: "),
        (("--shell_env", "A=b", "--conf_file", "tony.xml"), "--shell_env, --conf_file: "),
    ],
)  # fmt: skip
def test_what_makes_a_new_one_is_refused_beside_attach(words: tuple[str, ...], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(arguments("--attach", "local_1", *words))
    assert str(caught.value).startswith(named)


def test_a_port_is_refused_where_none_is_opened() -> None:
    with pytest.raises(UsageError, match="--port: --detach opens nothing"):
        run(arguments("--detach", "--port", "0"))


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_what_is_no_port(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments("--port", port)
    assert f"{port!r} is not a port" in capsys.readouterr().err


def test_gpus_of_a_job_file_are_not_held_for_an_hour(tmp_path: Path) -> None:
    file = tmp_path / "job.xml"
    file.write_text(
        "<configuration><property><name>tony.notebook.gpus</name><value>2</value></property>"
        "</configuration>"
    )
    job = job_of("--conf_file", str(file))
    assert job.roles[0].resources.gpus == 2 and job.timeouts.client_lease_s == 600.0


def written(path: Path, keys: Dict[str, str], final: bool = False) -> str:
    """A file of keys."""
    end = "<final>true</final>" if final else ""
    rows = (
        f"<property><name>{k}</name><value>{v}</value>{end}</property>" for k, v in keys.items()
    )
    path.write_text(f"<configuration>{''.join(rows)}</configuration>")
    return str(path)


KEYS = {
    "tony.application.name": "mine",
    "tony.notebook.memory": "8g",
    "tony.client.lease": "16h",
    "tony.client.first-lease": "10m",
    "tony.am.retry-count": "2",
}


def times_and_sizes(job: Job) -> Tuple[object, ...]:
    times = job.timeouts
    return (job.name, job.roles[0].resources.memory_mb, times.client_lease_s,
            times.client_first_lease_s, job.master.user_retries)  # fmt: skip


def test_keys_of_a_job_file_beat_our_defaults_and_options_beat_both(tmp_path: Path) -> None:
    words = ("--conf_file", written(tmp_path / "job.xml", KEYS))
    assert times_and_sizes(job_of(*words)) == ("mine", 8192, 16 * 3600.0, 600.0, 2)
    more = ("--memory", "3g", "--gpus", "1", "--conf", "tony.client.lease=2h")
    assert times_and_sizes(job_of(*words, *more)) == ("mine", 3072, 7200.0, 600.0, 2)
    assert times_and_sizes(job_of()) == ("notebook", 2048, 3600.0, 300.0, 0)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_what_a_site_seals_is_no_reason_to_refuse_a_plain_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    plain = times_and_sizes(job_of())
    written(tmp_path / "tony-site.xml", {key: KEYS[key]}, final=True)
    monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))
    sealed = times_and_sizes(job_of())
    assert sum(one != other for one, other in zip(plain, sealed, strict=True)) == 1
    with pytest.raises(JobError, match="is final in"):
        job_of("--conf", f"{key}=7")


def test_a_sites_own_defaults_are_for_other_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = times_and_sizes(job_of())
    written(tmp_path / "tony-site.xml", KEYS)
    monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))
    assert times_and_sizes(job_of()) == plain


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, r"standalone runs exactly one task"),
        ({"tony.application.framework": "pytorch"}, r"has one task, .* has notebook \(2\)"),
    ],
)
def test_a_job_of_several_tasks_is_refused_before_it_is_submitted(
    tmp_path: Path, keys: Dict[str, str], why: str
) -> None:
    file = written(tmp_path / "job.xml", {"tony.notebook.instances": "2", **keys})
    with pytest.raises(JobError, match=why):
        job_of("--conf_file", file)


class TestAJobThatCannotBeServed:
    """Its scheduler is not opened a second time."""

    def serve(self, monkeypatch: pytest.MonkeyPatch, scheduler: Scripted, kills: bool) -> None:
        def refuse(name: str) -> Scripted:
            raise SchedulerError("too many connections")

        monkeypatch.setattr(schedulers, "open_scheduler", refuse)
        with Interrupts() as interrupts, listen_here(0) as sock:
            interrupts.defer()
            with pytest.raises(SchedulerError, match="too many connections"):
                _serve(sock, interrupts, scheduler, APP, kills=kills)

    def test_a_new_one_is_ended(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        scheduler = Scripted(str(tmp_path), status())
        self.serve(monkeypatch, scheduler, kills=True)
        reason = "its client could not open it: too many connections"
        assert scheduler.killed == [(APP, reason)]

    def test_one_that_cannot_be_ended_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        scheduler = Scripted(str(tmp_path), status())
        scheduler.unreachable = "nor is a kill taken"
        self.serve(monkeypatch, scheduler, kills=True)
        text = capsys.readouterr().err
        assert f"{APP} could not be ended (nor is a kill taken)" in text
        assert f"tony kill {APP}" in text

    def test_one_that_is_attached_to_stays(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        scheduler = Scripted(str(tmp_path), status())
        self.serve(monkeypatch, scheduler, kills=False)
        assert not scheduler.killed


def test_keys_beat_our_own(tmp_path: Path) -> None:
    file = tmp_path / "job.xml"
    file.write_text(
        "<configuration><property><name>tony.yarn.queue</name><value>trial</value></property>"
        "</configuration>"
    )
    job = job_of("--conf_file", str(file), "--conf", "tony.notebook.memory=3g")
    assert job.roles[0].resources.memory_mb == 3072 and job.queue == "trial"


def test_a_folder_with_spaces_stays_one_word() -> None:
    command = job_of("--notebook-dir", "/data/my work; true").roles[0].command
    assert shlex.split(command)[-1] == "--folder=/data/my work; true"


def test_a_job_file_with_roles_is_none_of_a_notebooks(tmp_path: Path) -> None:
    file = tmp_path / "job.xml"
    file.write_text(
        "<configuration><property><name>tony.worker.instances</name><value>2</value></property>"
        "<property><name>tony.worker.command</name><value>sleep 1</value></property>"
        "</configuration>"
    )
    with pytest.raises(JobError):
        job_of("--conf_file", str(file))
