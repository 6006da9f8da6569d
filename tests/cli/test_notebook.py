"""The job that ``tony notebook`` makes of its options."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest

from tony_core.cli.notebook import add_arguments, load_notebook
from tony_core.job.problems import JobError
from tony_core.job.spec import Job


def job_of(*words: str) -> Job:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return load_notebook(parser.parse_args(words)).job


def test_the_container_has_the_size_and_the_image_that_were_asked_for() -> None:
    job = job_of("--memory", "8g", "--vcores", "3", "--gpus", "2", "--image", "jupyter:4")
    (role,) = job.roles
    assert (role.name, role.instances) == ("notebook", 1)
    size = role.resources
    assert (size.memory_mb, size.vcores, size.gpus) == (8192, 3, 2)
    assert role.docker is not None and role.docker.image == "jupyter:4"
    assert shlex.split(role.command)[:3] == ["python3", "-m", "tony_notebook"]
    assert job_of().roles[0].docker is None


@pytest.mark.parametrize(("words", "lease_s"), [((), 60.0), (("--detach",), 0.0)])
def test_only_one_that_stays_has_no_lease(words: tuple[str, ...], lease_s: float) -> None:
    assert (job_of(*words).timeouts.client_lease_s or 0.0) == lease_s


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
