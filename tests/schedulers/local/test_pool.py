"""What the embedded scheduler's pool and shims do beyond the contract of every scheduler."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, List

import pytest

from tests.schedulers.contract import SMALL, Master, running, until
from tests.schedulers.local.fixtures import MOST_MB, LocalHarness
from tony_core.exit_causes import ExitCause
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.job.spec import Local, Resources
from tony_core.schedulers.container_pool import (
    Allocated,
    AllocationPending,
    Completed,
    Container,
    ContainerRequest,
    Launch,
    PreviousContainers,
    RequestRejected,
    Started,
)
from tony_core.schedulers.local import home, ledger, processes
from tony_core.schedulers.local.processes import MB, Measure, MemoryWatch, ProcessIdentity
from tony_core.schedulers.port import AppState

SLEEP = "import time; time.sleep(60)"


def shim_of(harness: LocalHarness, master: Master, container: Container) -> ProcessIdentity:
    folder = harness.folder(master).container(container.id)
    found = ProcessIdentity.from_json(home.read_json(folder.shim))
    assert found is not None
    return found


def test_a_killed_shim_leaves_nothing_and_one_end(
    harness: LocalHarness,
    tmp_path: Path,
) -> None:
    marker = f"marker-{tmp_path.name}-{time.time_ns()}"
    master = harness.master()
    (container,) = master.get()
    code = "import os, time\nif os.fork() == 0: os.setsid(); os.fork()\ntime.sleep(60)"
    master.pool.launch(container, Launch((sys.executable, "-c", code, marker), {}, ()))
    master.next(Started)
    until(lambda: len(running(marker)) == 3, "the program, its child and its grandchild")
    shim_of(harness, master, container).send(signal.SIGKILL)
    end = master.end_of(container)
    assert (end.exit_code, end.cause) == (137, ExitCause.KILLED)
    assert "watches over the container was killed" in end.diagnostics
    assert running(marker) == []
    master.quiet(0.2, Completed)


def test_a_stopped_shim_still_ends_its_container(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, not by force."""
    monkeypatch.setattr("tony_core.schedulers.local.container.FORCE_S", 600.0)
    master = harness.master()
    container = master.run(SLEEP)
    master.next(Started)
    shim_of(harness, master, container).send(signal.SIGSTOP)
    master.pool.stop(container.id)
    assert master.end_of(container).cause is ExitCause.RELEASED


def test_a_shim_ended_from_outside_is_no_release(harness: LocalHarness) -> None:
    master = harness.master()
    container = master.run(SLEEP)
    master.next(Started)
    shim_of(harness, master, container).send(signal.SIGTERM)
    end = master.end_of(container)
    assert (end.exit_code, end.cause) == (143, ExitCause.KILLED)
    assert str(os.getpid()) in end.diagnostics


def test_without_pidfds_ends_are_noticed_too(
    harness: LocalHarness,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_old(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", too_old)
    master = harness.master()
    container = master.run("raise SystemExit(6)")
    assert master.end_of(container).exit_code == 6
    other, container = master.get(2)
    master.launch(other, "import time; time.sleep(60)")  # which is why there is a next master
    master.launch(container, "import time; time.sleep(0.3); raise SystemExit(7)")
    while Started(container.id) not in master.received:
        master.next(Started)
    master.close()
    second = harness.next_master(master)
    second.next(PreviousContainers)
    assert second.end_of(container).exit_code == 7


def test_the_last_words_of_a_process_stand_in_its_end(harness: LocalHarness) -> None:
    master = harness.master()
    container = master.run("import sys; sys.exit('no such module, sorry')")
    assert "no such module, sorry" in master.end_of(container).diagnostics


def test_the_secret_goes_with_the_container(harness: LocalHarness) -> None:
    master = harness.master()
    container = master.run("pass")
    folder = harness.folder(master).container(container.id)
    master.end_of(container)
    assert not Path(folder.secret).exists()
    spec = Path(folder.launch)
    assert spec.stat().st_mode & 0o777 == 0o600
    assert b"not for everybody" not in spec.read_bytes()
    assert Path(folder.path).stat().st_mode & 0o777 == 0o700


def test_finish_ends_everything_and_gives_back(harness: LocalHarness) -> None:
    master = harness.master()
    one, _unused = master.get(2)
    master.launch(one, SLEEP)
    master.next(Started)
    master.pool.request([ContainerRequest("more", 0, 1, SMALL)], False)
    master.next(Allocated)
    shim = shim_of(harness, master, one)
    master.pool.finish(AppState.FAILED, "that was it", "http://history/")
    assert not shim.alive()
    left = harness.folder(master).container(one.id)
    assert not os.path.exists(left.work) and not os.path.exists(left.launch)
    status = harness.scheduler.status(harness.folder(master).app_id)
    assert (status.state, status.diagnostics) == (AppState.FAILED, "that was it")
    assert status.tracking_url == "http://history/"
    assert ledger.Ledger(harness.home.ledger).change().held == {}
    assert not Path(harness.folder(master).container(one.id).work).exists()


def test_progress_and_links_are_the_schedulers_too(harness: LocalHarness) -> None:
    master = harness.master()
    master.pool.report(0.25, "http://tensorboard/")
    status = harness.scheduler.status(harness.folder(master).app_id)
    assert (status.progress, status.tracking_url) == (0.25, "http://tensorboard/")
    assert status.page_url == "http://localhost:1/"
    assert status.state is AppState.RUNNING


def test_trouble_is_the_schedulers_too_until_the_end(harness: LocalHarness) -> None:
    master = harness.master()
    app_id = harness.folder(master).app_id
    master.pool.report(0.25, "", "worker:0 has stalled")
    assert harness.scheduler.status(app_id).trouble == "worker:0 has stalled"
    assert [status.trouble for status in harness.scheduler.list()] == ["worker:0 has stalled"]
    master.pool.report(0.25, "")
    assert harness.scheduler.status(app_id).trouble == ""
    master.pool.report(0.25, "", "worker:0 has stalled")
    master.pool.finish(AppState.FAILED, "that was it")
    assert harness.scheduler.status(app_id).trouble == ""


def test_a_share_is_held_by_the_shim_when_its_master_is_gone(
    harness: LocalHarness,
) -> None:
    master = harness.master()
    container = master.run(SLEEP)
    master.next(Started)
    held = ledger.Ledger(harness.home.ledger).change().held[container.id]
    assert held.owner == shim_of(harness, master, container)
    assert held.memory_mb == SMALL.memory_mb


# ------------------------------------------------------------------ artifacts


def artifact(name: str, path: Path, kind: Kind, use: Use = Use.RESOURCE) -> Artifact:
    return Artifact(name, use, kind, str(path), str(path))


def run_with(master: Master, artifacts: List[Artifact], code: str) -> Any:
    (container,) = master.get()
    argv = (sys.executable, "-I", "-S", "-c", code)
    master.pool.launch(container, Launch(argv, {}, tuple(artifacts)))
    return master.end_of(container)


def test_artifacts_stand_in_the_working_folder(
    harness: LocalHarness,
    tmp_path: Path,
) -> None:
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_text("inside")
    store = Path(harness.home.root) / "store"
    packed = store / "objects" / "abc" / "content.zip"
    packed.parent.mkdir(parents=True)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("deep/packed.txt", "packed")
    end = run_with(
        harness.master(),
        [
            artifact("named", tmp_path / "data.txt", Kind.FILE),
            artifact("src", tmp_path / "folder", Kind.FOLDER)._replace(
                uri="file://" + str(tmp_path / "folder")
            ),
            artifact("venv", packed, Kind.ARCHIVE),
        ],
        "import os, pathlib; p = pathlib.Path\n"
        "assert os.getcwd().endswith('/work'), os.getcwd()\n"
        "assert p('named').read_text() == 'data'\n"
        "assert p('src/inside').read_text() == 'inside'\n"
        "assert p('venv/deep/packed.txt').read_text() == 'packed', os.listdir('venv')\n",
    )
    assert end.exit_code == 0, end.diagnostics


@pytest.mark.parametrize("kind", [Kind.FILE, Kind.ARCHIVE])
def test_an_artifact_that_is_gone_is_a_failed_launch(
    harness: LocalHarness,
    tmp_path: Path,
    kind: Kind,
) -> None:
    end = run_with(harness.master(), [artifact("lost", tmp_path / "gone.zip", kind)], "pass")
    assert end.cause is ExitCause.LAUNCH
    assert "lost" in end.diagnostics
    assert "gone.zip" in end.diagnostics


def test_an_archive_that_is_none_is_a_failed_launch(
    harness: LocalHarness,
    tmp_path: Path,
) -> None:
    broken = Path(harness.home.root) / "store" / "objects" / "abc" / "content.zip"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"PK\x03\x04 no archive at all")
    end = run_with(harness.master(), [artifact("bad", broken, Kind.ARCHIVE)], "pass")
    assert end.cause is ExitCause.LAUNCH
    assert "bad cannot be localized" in end.diagnostics


@pytest.mark.parametrize(("first", "second"), [("same", "same"), ("ok", "../up"), ("ok", "..")])
def test_names_that_cannot_be_are_a_failed_launch(
    harness: LocalHarness,
    tmp_path: Path,
    first: str,
    second: str,
) -> None:
    (tmp_path / "x").write_text("x")
    artifacts = [artifact(name, tmp_path / "x", Kind.FILE) for name in (first, second)]
    assert run_with(harness.master(), artifacts, "pass").cause is ExitCause.LAUNCH


# ------------------------------------------------------------------ memory and GPUs


def test_a_child_that_was_just_forked_is_not_counted_yet() -> None:
    memory = MemoryWatch(100)
    assert memory.evaluate([Measure(1, 80 * MB)]) is None
    assert memory.evaluate([Measure(1, 80 * MB), Measure(2, 80 * MB)]) is None
    assert memory.evaluate([Measure(1, 80 * MB), Measure(3, 80 * MB)]) is None
    words = memory.evaluate([Measure(1, 80 * MB), Measure(3, 80 * MB)])
    assert words is not None
    assert "160 MB used of 100 MB by 2 processes" in words


def test_more_than_twice_the_limit_is_too_much_at_once() -> None:
    assert MemoryWatch(100).evaluate([Measure(1, 201 * MB)]) is not None
    assert MemoryWatch(0).evaluate([Measure(1, 201 * MB)]) is None


def test_near_the_limit_it_looks_more_often() -> None:
    memory = MemoryWatch(100)
    memory.evaluate([Measure(1, 10 * MB)])
    assert memory.pause_s == processes.CALM_S
    memory.evaluate([Measure(1, 90 * MB)])
    assert memory.pause_s == processes.NEAR_S


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose nvidia-smi knows two GPUs."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho GPU-one\necho GPU-two\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("two_gpus")
def test_each_gpu_is_handed_to_one_container(harness: LocalHarness, tmp_path: Path) -> None:
    master = harness.master()
    one_each = Resources(memory_mb=64, gpus=1)
    containers = master.get(2, one_each)
    assert sorted(container.gpu_ids for container in containers) == [("GPU-one",), ("GPU-two",)]
    for container in containers:
        path = tmp_path / container.id
        code = f"import os; open({str(path)!r}, 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])"
        master.launch(container, code)
    for container in containers:
        while Completed(container.id, 0, ExitCause.EXITED, "exit code 0") not in master.received:
            master.next(Completed)
        assert (tmp_path / container.id).read_text() == container.gpu_ids[0]
    master.pool.request([ContainerRequest("worker", 0, 1, Resources(memory_mb=64, gpus=3))], True)
    assert "3 GPUs are requested and there are 2" in master.next(RequestRejected).reason


def test_without_nvidia_smi_gpus_are_counted_by_the_job_file(
    harness: LocalHarness,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("tony_core.schedulers.local.capacity._PLACES", ())
    master = harness.master(local=Local(memory_mb=1000, gpus=2))
    (container,) = master.get(1, Resources(memory_mb=64, gpus=2))
    assert container.gpu_ids == ("0", "1")


def test_having_waited_for_spare_containers_is_no_merit(harness: LocalHarness) -> None:
    many = Resources(memory_mb=MOST_MB // 3)
    elastic, other = harness.master("elastic"), harness.master("other")
    elastic.pool.request([ContainerRequest("worker", 0, 9, many, optional=True)], False)
    held = elastic.next(Allocated).containers
    assert len(held) == 3
    book = ledger.Ledger(harness.home.ledger)

    def since(master: Master) -> float:
        app = harness.folder(master).app_id
        until(lambda: app in book.change().queue, "its ask")
        return book.change().queue[app].since

    before = since(elastic)
    other.pool.request([ContainerRequest("worker", 0, 2, many)], True)
    waited = since(other)
    # A new session of it needs something: it has waited for that since now.
    elastic.pool.request(
        [ContainerRequest("worker", 0, 0, many), ContainerRequest("worker", 1, 2, many)], True
    )
    until(lambda: since(elastic) > waited, "another time")
    assert waited > before
    elastic.pool.request([ContainerRequest("worker", 1, 0, many)], True)
    for container in held[:2]:
        elastic.pool.release(container.id)
    assert len(other.next(Allocated).containers) == 2


def test_a_ledger_on_a_full_disk_grants_nothing_and_ends_nothing(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = Resources(memory_mb=MOST_MB // 3)
    first, second = harness.master("first"), harness.master("second")
    kept, given = first.get(2, many)
    book = ledger.Ledger(harness.home.ledger)

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.Ledger, "_write", full)
        first.pool.release(given.id)
        second.pool.request([ContainerRequest("worker", 0, 2, many)], True)
        assert "waits for room on the disk" in second.next(AllocationPending).reason
        second.quiet(0.3, Allocated)
        assert {item.container_id for item in book.reservations()} == {kept.id, given.id}
        first.launch(kept, SLEEP)
        first.next(Started)
        first.pool.report(0.5, "")
    assert len(second.next(Allocated).containers) == 2
    assert given.id not in {item.container_id for item in book.reservations()}
    first.pool.stop(kept.id)
    assert first.end_of(kept).cause is ExitCause.RELEASED
