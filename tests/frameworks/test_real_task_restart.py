"""A parameter server that is restarted within its session: TensorFlow's own word on it."""

import os
import signal
from typing import Any, Callable, Dict, List

import pytest

from tests.frameworks.submitting import Submitted

pytestmark = [pytest.mark.frameworks, pytest.mark.nightly, pytest.mark.timeout(300)]
STEPS = 300


def story_of(job: Submitted, kind: str) -> List[Dict[str, Any]]:
    return [line for line in job.story() if line["kind"] == kind]


def test_a_lost_parameter_server_is_the_chiefs_failure(submit: Callable[..., Submitted]) -> None:
    conf = ["tony.ps.restart-scope=task"]
    params = f"--steps {STEPS} --step-sleep 0.03"
    job = submit("tensorflow-ps", "tensorflow", params=params, conf=conf)
    job.until("step 45", lambda: len(job.steps()) > 45)
    os.kill(job.program_of("ps", 0), signal.SIGKILL)
    job.ends(0)
    assert len(story_of(job, "task-again")) == 1
    causes = [line["task"] for line in story_of(job, "root-cause")]
    assert causes == ["chief:0"], "its variables are gone"
    assert (job.result()["sessions"], {x["session"] for x in job.steps()}) == (2, {0, 1})
