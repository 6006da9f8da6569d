"""The job that ``tony notebook`` makes of its options."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest

from tony_core.cli.notebook import add_arguments, load_notebook, run
from tony_core.client.errors import UsageError
from tony_core.job.problems import JobError
from tony_core.job.spec import Job


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
