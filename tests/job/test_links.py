"""Links that a job brings for its own page and history."""

from __future__ import annotations

import pytest

from tony_core.job.jsonfile import job_from_json, job_to_json
from tony_core.job.load import JobArguments, load_job
from tony_core.job.problems import JobError
from tony_core.job.spec import Job


def job(links: str) -> Job:
    arguments = JobArguments(executes="true", extra={"tony.application.links": links})
    return load_job(arguments, env={}, cwd="/").job


def test_links_are_names_and_addresses() -> None:
    made = job("flow=http://az.example/executor?execid=3&job=a,run=https://x.example/r/1")
    assert made.links == (
        ("flow", "http://az.example/executor?execid=3&job=a"),
        ("run", "https://x.example/r/1"),
    )
    assert job_from_json(job_to_json(made)).links == made.links


def test_no_link_holds_a_password() -> None:
    ((_, url),) = job("flow=http://me:hush@az.example/").links
    assert "hush" not in url


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("flow=javascript:alert(1)", "no address for a browser"),
        ("page=http://elsewhere.example/", "a link that every job has"),
        ("flow", "no address for a browser"),
    ],
)
def test_other_links_are_refused(links: str, message: str) -> None:
    with pytest.raises(JobError, match="tony.application.links.*" + message):
        job(links)
