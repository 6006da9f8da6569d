"""The embedded scheduler's jobs in the portal, really."""

from __future__ import annotations

import getpass
import os
import shutil
from pathlib import Path
from typing import Callable

import pytest

from tests.cluster.yarn.jobs import Tony
from tests.portal.real_jobs import (
    RealPortal,
    history_root,
    look_when_ended,
    look_while_running,
    other_owner,
    write_program,
)
from tony_core.portal.job_source import LogProblem

pytestmark = pytest.mark.slow


def test_a_job_from_its_submit_to_long_after_its_end(
    tony_on: Callable[..., Tony], tony_home: Path, tmp_path: Path
) -> None:
    tony = tony_on()
    program = write_program(tmp_path)
    owner = getpass.getuser()
    portal = RealPortal("local", tony.env, history_root(tony_home))
    try:
        running = tony.submit(
            "--executes",
            f"{program} {tmp_path}/go 0",
            conf={"tony.worker.instances": 1, "tony.application.framework": "standalone"},
        )
        look_while_running(portal, running, owner)
        app_id = running.app_id
        _, why = other_owner(portal, app_id)
        assert "last line" not in why
        (tmp_path / "go").touch()
        running.ends(0)
        look_when_ended(portal, app_id, owner, "SUCCEEDED")

        # A program's links lead nowhere.
        job = portal.job(app_id, owner)
        (container, _), *_ = job.streams("worker:0")
        log = tony_home / "apps" / app_id / "logs" / container / "stdout"
        log.unlink()
        log.symlink_to("/etc/passwd")
        with pytest.raises(LogProblem, match="stdout cannot be read"):
            job.log("worker:0", "stdout", "", 0, 100)

        shutil.rmtree(tony_home / "apps" / app_id)  # as tony gc
        with pytest.raises(LogProblem, match="tony gc removes those"):
            portal.job(app_id, owner).log("worker:0", "stdout", "", 0, 100)
        assert portal.job(app_id, owner).record().job["state"] == "SUCCEEDED"
    finally:
        portal.close()
    assert os.path.isdir(tony_home)
