"""The client for a program."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, List

import pytest

from tests.client.scripted import Scripted
from tests.client.test_submission import job
from tony_core import client
from tony_core.client import Client, run, submit
from tony_core.schedulers.port import AppState


@pytest.fixture
def scheduler(tmp_path: Path) -> Scripted:
    return Scripted(str(tmp_path / "tony-home"))


def ends(scheduler: Scripted, state: AppState = AppState.SUCCEEDED) -> threading.Thread:
    def soon() -> None:
        end = time.monotonic() + 10
        while not scheduler.apps and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        for app_id in scheduler.apps:
            scheduler.set(app_id, state=state, finished=time.time(), diagnostics="so it is")

    thread = threading.Thread(target=soon)
    thread.start()
    return thread


def test_run_to_the_end(tmp_path: Path, scheduler: Scripted) -> None:
    received: List[Any] = []
    thread = ends(scheduler, AppState.TIMED_OUT)
    result = run(
        job(tmp_path),
        scheduler=scheduler,
        on_application=lambda app_id: received.append(app_id),
        on_finished=lambda view: received.append(view.state),
    )
    thread.join()
    assert received == [result.app_id, AppState.TIMED_OUT]
    assert (result.exit_code, result.diagnostics, result.succeeded) == (4, "so it is", False)
    assert scheduler.closed == 0  # it is the caller's


def test_an_exception_of_the_caller_ends_the_job(tmp_path: Path, scheduler: Scripted) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        submit(job(tmp_path), scheduler=scheduler) as started,
    ):
        raise KeyboardInterrupt
    assert scheduler.killed == [(started.app_id, "its client ended by KeyboardInterrupt")]


def test_a_detached_one_goes_on(tmp_path: Path, scheduler: Scripted) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        submit(job(tmp_path), scheduler=scheduler, detach=True),
    ):
        raise KeyboardInterrupt
    assert scheduler.killed == []


def test_a_callback_that_fails_on_the_id_ends_the_job(tmp_path: Path, scheduler: Scripted) -> None:
    def fails(app_id: str) -> None:
        raise LookupError(app_id)

    with pytest.raises(LookupError):
        submit(job(tmp_path), scheduler=scheduler, on_application=fails)
    assert len(scheduler.killed) == 1


def test_wait_with_a_deadline_and_again(tmp_path: Path, scheduler: Scripted) -> None:
    with Client(scheduler) as opened:
        started = opened.submit(job(tmp_path))
        assert started.wait(0.1) is None
        thread = ends(scheduler)
        result = started.wait(60)
        thread.join()
        assert result is not None
        assert started.wait() is result
        assert opened.attach(started.app_id).wait(5) is not None
    assert scheduler.closed == 1


def test_a_dry_run_sends_and_writes_nothing(tmp_path: Path, scheduler: Scripted) -> None:
    submission = Client(scheduler).dry_run(job(tmp_path))
    assert submission.details["argv"] == ["python3", "master"]
    assert scheduler.submitted == []
    assert not Path(scheduler.root).exists()


def test_every_name_of_the_package_is_there() -> None:
    for name in client.__all__:
        assert getattr(client, name) is not None
    with pytest.raises(AttributeError):
        client.nothing  # noqa: B018
