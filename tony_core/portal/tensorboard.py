"""TensorBoard of ended jobs, started on demand beside the portal, one for each viewer and job.

Theory of operation
===================

A job's event files are copied (:mod:`~tony_core.portal.event_files`) into a folder of the portal's
own, and a TensorBoard process shows that copy at a socket in that folder. Browsers reach it through
the :class:`~tony_core.portal.tensorboard_relay.TensorBoardRelay`, below a path that holds a random
token: a viewer who was shown it may use it, and it ends with the process.

``open`` never blocks: the copy and the start go on in a thread, and the next look says how far they
are. An instance ends when it was not used for the time that the settings name, when the portal ends
(its process ends with its standard input, however the portal died), or to make room for the same
viewer's next one. Places, bytes and times are limited.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from tony_core.files.location import is_remote, local_path, scheme_of
from tony_core.files.registry import filesystem
from tony_core.portal.event_files import Copied, NoEventFiles, copy_local, copy_remote
from tony_core.portal.index.rows import JobRow
from tony_core.portal.schedulers import TooLate, call_within
from tony_core.portal.sources import Sources
from tony_core.portal.viewer import Viewer
from tony_core.schedulers.port import SchedulerError
from tony_core.unexpected_errors import UnexpectedErrors

KEY = "tony.application.tensorboard-log-dir"
MOST_INSTANCES = 8
MOST_OF_VIEWER = 2
COPY_S = 600.0
START_S = 120.0  # TensorBoard imports for seconds, on a busy machine for many
END_S = 3.0
LOOK_S = 0.1
REAP_S = 2.0
RETRY_S = 10.0  # until one that failed is tried again
YARN = "yarn"
_PREFIX = "tony-tensorboard-"
_OF_PROCESS = re.compile(rf"{_PREFIX}(\d+)-")
_SERVER = str(Path(__file__).with_name("tensorboard_server.py"))
_MISSING = "No module named 'tensorboard'"


class InstanceState(str, Enum):
    """How far an instance is."""

    COPYING = "copying"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


class Instance(NamedTuple):
    """An instance as its viewer sees it."""

    state: InstanceState
    message: str = ""  # why there is none, or what it lacks
    path: str = ""  # at the relay


class _Running:
    """An instance as the portal keeps it."""

    def __init__(self, key: Tuple[str, ...], now: float) -> None:
        self.key = key
        self.token = secrets.token_urlsafe(32)
        self.state = InstanceState.COPYING
        self.message = ""
        self.used = now
        self.folder = ""
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.is_over = False

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, "socket")

    def view(self) -> Instance:
        path = f"/{self.token}/" if self.state is InstanceState.READY else ""
        return Instance(self.state, self.message, path)


class TensorBoards:
    """The instances that are open. Any thread may ask."""

    def __init__(
        self,
        sources: Sources,
        *,
        idle_s: float = 600.0,
        python: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``python`` has TensorBoard; empty: the portal's own."""
        self._sources = sources
        self._idle_s = idle_s
        self._python = python or sys.executable
        self._clock = clock
        self._changed = threading.Condition()
        self._instances: Dict[Tuple[str, ...], _Running] = {}
        self._closed = False
        self._threads: List[threading.Thread] = []
        self.errors = UnexpectedErrors()
        _remove_leftovers()
        self._reaper = threading.Thread(target=self._reap, name="tensorboards", daemon=True)
        self._reaper.start()

    def open(self, row: JobRow, viewer: Viewer) -> Instance:
        """The viewer's instance of a job that he may see; starts one where there is none."""
        key = (viewer.name, row.location, row.app_id, row.owner)
        over: List[_Running] = []
        try:
            with self._changed:
                instance = self._instances.get(key)
                now = self._clock()
                if instance is not None and instance.state is InstanceState.FAILED:
                    if now - instance.used < RETRY_S:
                        return instance.view()
                    del self._instances[key]
                    over.append(instance)
                    instance = None
                if instance is not None:
                    instance.used = now
                    return instance.view()
                problem = self._make_room(viewer.name, over)
                if problem:
                    return Instance(InstanceState.FAILED, problem)
                instance = self._instances[key] = _Running(key, now)
                thread = threading.Thread(
                    target=self._start,
                    args=(instance, row, viewer),
                    name="tensorboard",
                    daemon=True,
                )
                self._threads = [one for one in self._threads if one.is_alive()] + [thread]
                thread.start()
                return instance.view()
        finally:
            for one in over:
                self._end(one)

    def look(self, row: JobRow, viewer: Viewer) -> Optional[Instance]:
        """The viewer's instance of a job, if there is one; it is not held open by a look."""
        with self._changed:
            instance = self._instances.get((viewer.name, row.location, row.app_id, row.owner))
            return instance.view() if instance is not None else None

    def socket_of(self, token: str) -> str:
        """The socket of a ready instance, which is in use now; empty where there is none."""
        with self._changed:
            for instance in self._instances.values():
                is_it = secrets.compare_digest(instance.token.encode(), token.encode())
                if is_it and instance.state is InstanceState.READY:
                    instance.used = self._clock()
                    return instance.socket
        return ""

    def close(self) -> None:
        """End all."""
        with self._changed:
            self._closed = True
            instances = list(self._instances.values())
            self._instances.clear()
            self._changed.notify_all()
        for instance in instances:
            self._end(instance)
        for thread in (self._reaper, *self._threads):
            thread.join(END_S + 1.0)

    # ------------------------------------------------------------------ room

    def _make_room(self, viewer: str, over: List[_Running]) -> str:
        """Why there is no room; empty where there is, maybe after an instance of his has ended."""
        if self._closed:
            return "the portal is being stopped"
        own = sorted(
            (instance for instance in self._instances.values() if instance.key[0] == viewer),
            key=lambda instance: instance.used,
        )
        if len(own) >= MOST_OF_VIEWER:
            del self._instances[own[0].key]
            over.append(own[0])
        if len(self._instances) >= MOST_INSTANCES:
            return (
                f"{MOST_INSTANCES} TensorBoards are open, which is the most: try again when one was"
                " not used for a while and has ended"
            )
        return ""

    def _reap(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, REAP_S):
                    return
            self.end_idle()

    def end_idle(self) -> None:
        """End what was not used for the time; note what ended by itself."""
        now = self._clock()
        with self._changed:
            for instance in self._instances.values():
                if instance.state is InstanceState.READY and _has_exited(instance):
                    instance.state, instance.used = InstanceState.FAILED, now
                    instance.message = f"TensorBoard ended by itself: {_last_line(instance)}"
            idle = [one for one in self._instances.values() if now - one.used >= self._idle_s]
            for instance in idle:
                del self._instances[instance.key]
        for instance in idle:
            self._end(instance)

    def _end(self, instance: _Running) -> None:
        instance.is_over = True
        process = instance.process
        if process is not None:
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if instance.folder:
            shutil.rmtree(instance.folder, ignore_errors=True)

    # ------------------------------------------------------------------ the start

    def _start(self, instance: _Running, row: JobRow, viewer: Viewer) -> None:
        try:
            instance.folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
            copied = self._copy(instance, row, viewer)
            instance.state = InstanceState.STARTING
            self._launch(instance)
            if copied.left_out:
                instance.message = (
                    f"{copied.left_out} event files are left out: too many or too large"
                )
            instance.state = InstanceState.READY
        except (NoEventFiles, SchedulerError, OSError) as error:
            self._fail(instance, str(error))
        except Exception:
            self._fail(instance, self.errors.record("starting TensorBoard"))
        finally:
            if instance.is_over:
                self._end(instance)

    def _fail(self, instance: _Running, why: str) -> None:
        with self._changed:
            instance.state, instance.message = InstanceState.FAILED, why
            instance.used = self._clock()
        self._end(instance)

    def _copy(self, instance: _Running, row: JobRow, viewer: Viewer) -> Copied:
        job = self._sources.open(row, viewer)
        try:
            log_dir = next((entry.value for entry in job.config() if entry.key == KEY), "")
        except (OSError, ValueError) as error:
            raise NoEventFiles(f"the job's configuration cannot be read: {error}") from None
        if not log_dir:
            raise NoEventFiles(
                f"the job names no folder of event files ({KEY} is not in its configuration)"
            )
        target = os.path.join(instance.folder, "events")
        os.mkdir(target, 0o700)

        def is_wanted() -> bool:
            return not instance.is_over

        if is_remote(log_dir):
            return self._copy_remote(log_dir, row, viewer, target, is_wanted)
        path = local_path(log_dir)
        if not os.path.isabs(path):
            raise NoEventFiles(
                f"{log_dir} was a folder in the job's containers and was removed with them: name a"
                f" folder that stays, with its whole path or on HDFS, by {KEY}"
            )
        return copy_local(path, row.owner, target, is_wanted)

    def _copy_remote(
        self, log_dir: str, row: JobRow, viewer: Viewer, target: str, is_wanted: Callable[[], bool]
    ) -> Copied:
        def copy() -> Copied:
            return copy_remote(filesystem(log_dir), log_dir, row.owner, target, is_wanted)

        pool = self._sources.pool
        if scheme_of(log_dir) not in ("hdfs", "webhdfs", "swebhdfs"):
            raise NoEventFiles(
                f"{log_dir} is in a place that does not say whose a file is, so the portal does not"
                " open it: TensorBoard with --logdir shows it where its keys are"
            )
        try:
            if YARN in pool.names:  # HDFS decides what this viewer may read
                user = pool.user_for(YARN, viewer.name)
                return pool.call(
                    YARN, lambda scheduler: copy(), user=user, within_s=COPY_S, what="event files"
                )
            return call_within(copy, COPY_S, "copying event files")
        except TooLate as error:
            raise NoEventFiles(str(error)) from None

    def _launch(self, instance: _Running) -> None:
        """Start the process and wait until it answers; raises NoEventFiles with the reason."""
        settings = {"log_dir": os.path.join(instance.folder, "events"), "socket": instance.socket}
        with open(os.path.join(instance.folder, "log"), "wb") as log:
            process = subprocess.Popen(
                [self._python, "-I", _SERVER],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=instance.folder,
                env=_environment(instance.folder),
                start_new_session=True,
            )
        with self._changed:
            instance.process = process
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
        deadline = time.monotonic() + START_S
        while not _answers(instance.socket):
            if process.poll() is not None:
                raise NoEventFiles(self._explain_end(instance))
            if instance.is_over:
                raise NoEventFiles("it is not wanted any more")
            if time.monotonic() >= deadline:
                raise NoEventFiles(f"TensorBoard does not answer within {START_S:g} s")
            time.sleep(LOOK_S)

    def _explain_end(self, instance: _Running) -> str:
        last = _last_line(instance)
        if _MISSING in last:
            return (
                f"the Python of the portal ({self._python}) has no TensorBoard. Who runs"
                " the portal installs it there (pip install tensorboard), or names another Python"
                " (tensorboard-python)"
            )
        return f"TensorBoard did not start: {last}"


def _environment(folder: str) -> Dict[str, str]:
    """What TensorBoard needs, and nothing that the portal keeps in its own environment."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return {**kept, "HOME": folder, "TMPDIR": folder}


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _has_exited(instance: _Running) -> bool:
    return instance.process is not None and instance.process.poll() is not None


def _last_line(instance: _Running) -> str:
    try:
        with open(os.path.join(instance.folder, "log"), "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:500] if lines else "it wrote nothing"


def _remove_leftovers() -> None:
    """Remove the folders of this user's portals that died."""
    root = tempfile.gettempdir()
    with suppress(OSError):
        for name in os.listdir(root):
            match = _OF_PROCESS.match(name)
            path = os.path.join(root, name)
            if match is None or os.path.exists(f"/proc/{match[1]}"):
                continue
            with suppress(OSError):
                if os.lstat(path).st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)
