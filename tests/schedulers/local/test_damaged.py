"""The embedded scheduler's own files, damaged: nothing raises, and no job goes unseen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict
from unittest.mock import patch

import pytest

from tests.cli.conftest import Tony, tony
from tests.fuzzing import fuzz, mutations
from tests.schedulers.contract import harness_job
from tony_core.job.spec import Resources
from tony_core.schedulers.container_pool import Container
from tony_core.schedulers.local import attempts, engine, home, processes
from tony_core.schedulers.local.applications import Application, read_status, write_status
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.local.container import RunningContainer, container_to_json
from tony_core.schedulers.local.home import AppFolder, Home
from tony_core.schedulers.local.processes import ProcessIdentity
from tony_core.schedulers.port import AppState

__all__ = ["tony"]

JOB = harness_job()
DEEP = b"[" * 100_000
APP = Application(
    "app_1", "mnist", "ann", "q", "t", ("a",), 1000.0, "another-host", "boot",
    ProcessIdentity(1, 2, "boot"), "/usr/bin/python3", "/runtime", {"PATH": "/bin"}, 2, 5.0,
    JOB.local,
)  # fmt: skip
STATUS = APP.first_status()._replace(state=AppState.RUNNING, started=1001.0, progress=0.5)
CONTAINER = Container("c_1", "n", "worker", Resources(), gpu_ids=(1,), log_url="file:///x")


IMAGE = {"program": "/bin/false", "name": "x", "env": {"A": "b"}}


def bytes_of(value: Dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def app_folder(root: Path) -> AppFolder:
    folder = Home(str(root)).app("app_1")
    home.make_folder(folder.path)
    home.write_json(folder.app, APP.to_json())
    write_status(folder, STATUS)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> AppFolder:
    return app_folder(tmp_path_factory.mktemp("home"))


def put(path: str, data: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(data)


_LOCK = bytes_of({"attempt": 1, **ProcessIdentity(4_000_000, 2, "boot").to_json()})
_STATUS = bytes_of({**STATUS._asdict(), "state": "RUNNING", "tags": ["a"]})


@fuzz(app=mutations(bytes_of(APP.to_json())), status=mutations(_STATUS), lock=mutations(_LOCK))
def test_any_app_and_status(folder: AppFolder, app: bytes, status: bytes, lock: bytes) -> None:
    put(folder.app, app)
    put(folder.status, status)
    put(folder.lock, lock)
    for found in filter(None, [Application.read(folder), APP]):
        json.dumps(found.to_json())
        assert found.now() > 0 and isinstance(found.here, bool)
        assert isinstance(read_status(folder, found).state, AppState)
    attempts.may_start(folder, home.read_json(folder.app))
    attempts.is_abandoned(folder, "c_1")
    attempts.read(folder)


@fuzz(
    launch=mutations(bytes_of({"container": container_to_json(CONTAINER), "image": IMAGE})),
    shim=mutations(bytes_of(ProcessIdentity(4_000_000, 2, "boot").to_json())),
    story=mutations(bytes_of({"exit_code": 1, "cause": "exited", "diagnostics": "it broke"})),
)
def test_any_container(folder: AppFolder, launch: bytes, shim: bytes, story: bytes) -> None:
    place = folder.container("c_1")
    home.make_folder(place.path)
    put(place.launch, launch)
    put(place.shim, shim)
    put(place.exit, story)
    running = RunningContainer.find(folder, "c_1")
    if running is not None:
        assert running.container.id == "c_1"
        assert not running.alive()
        with (
            patch.object(processes, "kill_container", return_value=[]),  # looks at all of /proc
            patch.object(engine, "run", return_value=(0, "")),
        ):
            assert isinstance(running.collect_end().exit_code, int)


@pytest.mark.parametrize("data", [b"", b"{", DEEP, b"[]", b'{"name": 1}'], ids=range(5))
def test_a_damaged_job_is_named_by_list(tony: Tony, data: bytes) -> None:
    root = Home(home.home_root(dict(os.environ)))
    put(app_folder(Path(root.root)).app, data)
    done = tony("list")
    assert done.code == 0
    assert done.err.count("app_1 is not shown") == 1 and "app.json" in done.err
    assert "Traceback" not in done.err


def test_a_damaged_status_is_named_by_list(tony: Tony) -> None:
    root = Home(home.home_root(dict(os.environ)))
    put(app_folder(Path(root.root)).status, b"{")
    done = tony("list")
    assert "app_1" in done.out and "status.json" in done.err


def test_a_job_that_is_being_staged_is_not_damaged(tony: Tony) -> None:
    home.make_folder(Home(home.home_root(dict(os.environ))).app("app_1").path)
    assert "app_1" not in tony("list").err
    assert LocalScheduler().list() == []
