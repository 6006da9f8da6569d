"""A launched container for its pool: starts its shim or finds it again, and reads its end.

A shim's end shows on its pidfd, where the kernel has that; elsewhere by polling. Its exit record
decides; where it was killed before it could write one, its processes are found by their mark and
ended here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from tony_core.exit_causes import ExitCause, exit_code_of
from tony_core.job.spec import Resources
from tony_core.schedulers.container_pool import Completed, Container, Launch
from tony_core.schedulers.local import attempts, engine, home, images, processes
from tony_core.schedulers.local.home import AppFolder, ContainerFolder
from tony_core.schedulers.local.images import Images
from tony_core.schedulers.local.processes import ProcessIdentity

FORCE_S = 6.0  # a shim that has not ended its container by then is ended itself


class RunningContainer:
    """A container that was launched and whose end was not reported yet."""

    def __init__(self, container: Container, folder: ContainerFolder) -> None:
        self.container = container
        self.folder = folder
        self.shim: Optional[ProcessIdentity] = None
        self.pidfd: Optional[int] = None
        self.started_fd: Optional[int] = None  # one byte comes when the process runs
        self.force_at: Optional[float] = None
        self._child: Optional[subprocess.Popen[bytes]] = None

    # ------------------------------------------------------------------ the start

    @classmethod
    def launch(
        cls,
        app: AppFolder,
        container: Container,
        launch: Launch,
        env: Mapping[str, str],
        runtime: RuntimeCommand,
        archives: Tuple[int, int],
        in_images: Optional[Images] = None,
    ) -> RunningContainer:
        """Write down what is to run, and start the shim that runs it."""
        running = cls(container, app.container(container.id))
        folder = running.folder
        home.make_folder(folder.path)
        os.mkdir(folder.work, 0o700)
        home.make_folder(folder.logs)
        home.write_bytes(folder.secret, launch.secret)
        shown = container_to_json(container)
        home.write_json(folder.container, {**shown, "task": launch.task})
        spec = {
            "container": shown,
            "argv": list(launch.argv),
            "env": dict(env),
            "artifacts": [item.to_json() for item in launch.artifacts],
            "memory_mb": container.resources.memory_mb,
            "root": app.home.root,
            "archives": list(archives),
            "successor": runtime.argv("local-successor", "--app-dir", app.path),
            "finalize": runtime.argv(
                "local-finalize", "--app-dir", app.path, "--container", container.id
            ),
        }
        if in_images is not None and in_images.has_image(container.role):
            spec.update(_image_spec(in_images, app, container, launch, env))
        home.write_json(folder.launch, spec)
        reading, writing = os.pipe()
        try:
            running._start(runtime, env, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        running.started_fd = reading
        return running

    def _start(self, runtime: RuntimeCommand, env: Mapping[str, str], started_fd: int) -> None:
        argv = runtime.argv("shim", "--spec", self.folder.launch)
        # The shim carries the container's mark too, so that it is found with the rest.
        mark = {name: env[name] for name in ("PATH", "TONY_CONTAINER_ID", "TONY_HOME")}
        with open(self.folder.shim_log, "ab") as log:
            self._child = subprocess.Popen(
                [*argv, "--started-fd", str(started_fd)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=mark,
                cwd=self.folder.path,
                pass_fds=(started_fd,),
                start_new_session=True,
            )
        self.shim = ProcessIdentity.of(self._child.pid)
        if self.shim is not None:
            home.write_json(self.folder.shim, self.shim.to_json())
        self._open_pidfd(self._child.pid)

    @classmethod
    def find(cls, app: AppFolder, container_id: str) -> Optional[RunningContainer]:
        """Find what a previous attempt launched and whose end was not reported; else None."""
        folder = app.container(container_id)
        spec = home.read_json(folder.launch)
        if spec is None or os.path.exists(folder.ended):
            return None
        try:
            container = container_from_json(spec["container"])
        except (KeyError, TypeError, ValueError):
            return None  # a damaged file: of a container that nothing is known of
        if container.id != container_id:
            return None  # damaged, too; and another container's processes are not ended by it
        running = cls(container, folder)
        running.shim = ProcessIdentity.from_json(home.read_json(folder.shim))
        if running.shim is not None and running.shim.alive():
            running._open_pidfd(running.shim.pid)
            if not running.shim.alive():
                running._close_pidfd()  # it has ended, and its pid may be reused
        return running

    def _open_pidfd(self, pid: int) -> None:
        try:
            self.pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self.pidfd = None  # Python or kernel too old, or gone already: look now and then

    # ------------------------------------------------------------------ while it runs

    def started(self) -> bool:
        """Whether the start was reported; call it when ``started_fd`` is readable."""
        if self.started_fd is None:
            return False
        try:
            got = os.read(self.started_fd, 1)
        except BlockingIOError:
            return False
        os.close(self.started_fd)
        self.started_fd = None
        return bool(got)

    def alive(self) -> bool:
        """Whether its shim runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self.shim is not None and self.shim.alive()

    def stop(self) -> None:
        """Have the shim end it; a second call changes nothing."""
        if self.force_at is None:
            home.write_bytes(self.folder.stop, b"")
            self.force_at = time.monotonic() + FORCE_S
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # it may be stopped (SIGSTOP)

    def force(self) -> None:
        """End the shim itself; what it leaves is ended with the container's end."""
        self._signal(signal.SIGKILL)
        self.force_at = time.monotonic() + FORCE_S

    def _signal(self, number: int) -> None:
        if self._child is not None:
            self._child.send_signal(number)
        elif self.shim is not None:
            self.shim.send(number)

    # ------------------------------------------------------------------ the end

    def collect_end(self) -> Completed:
        """Read how it ended, once its shim is gone; nothing of it is left when this returns."""
        self.close()
        record = _read_exit(self.folder.exit)
        if record is None:
            left = processes.kill_container(self.container.id)
            kept = _remove_engine_container(self.folder)
            cause, exit_code, words = self._end_without_record(left)
            words += f"; left behind: {kept}" if kept else ""
        else:
            cause, exit_code, words = record
        if cause is ExitCause.EXITED and exit_code != 0:
            text = home.tail(self.folder.process_log, lines=5, limit=2048)
            words += f"\nits last output:\n{text}" if text else ""
        return Completed(self.container.id, exit_code, cause, words)

    def record_end(self) -> None:
        """Write down that the end was reported, and remove the secret."""
        try:
            os.unlink(self.folder.secret)
        except FileNotFoundError:
            pass
        try:
            home.write_json(self.folder.ended, {"at": time.time()})
        except OSError as error:
            if not home.is_full(error):
                raise  # else a next master reports it again

    def close(self) -> None:
        """Give back the file descriptors; reap the shim if it has ended."""
        if self._child is not None:
            if self._child.poll() is None:
                # It outlives this process, which waits for it no more.
                self._child.returncode = 0
            self._child = None
        self._close_pidfd()
        if self.started_fd is not None:
            os.close(self.started_fd)
            self.started_fd = None

    def _close_pidfd(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def _end_without_record(self, left: List[int]) -> Tuple[ExitCause, int, str]:
        words = "the process that watches over the container was killed"
        log = home.tail(self.folder.shim_log, lines=5)
        if log:
            words += f"\nits last output:\n{log}"
        if left:
            words += f"; left behind, as they cannot be killed: {left}"
        stop_requested = os.path.exists(self.folder.stop)
        cause = ExitCause.RELEASED if stop_requested else ExitCause.KILLED
        return cause, exit_code_of(signal.SIGKILL), words


def _read_exit(path: str) -> Optional[Tuple[ExitCause, int, str]]:
    """Read how a container ended, as its shim wrote it; None if it wrote nothing, or not whole."""
    data = home.read_json(path) or {}
    try:
        return ExitCause(data["cause"]), int(data["exit_code"]), str(data["diagnostics"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _image_spec(
    in_images: Images, app: AppFolder, container: Container, launch: Launch, env: Mapping[str, str]
) -> Dict[str, Any]:
    """The fields of launch.json for a container in an image."""
    folder = app.container(container.id)
    inside = in_images.environment(env, launch, folder.work)
    text, rest = images.write_env(inside)
    home.write_bytes(images.env_file(folder.path), text)
    own = dict(in_images.engine.env)
    return {
        "argv": in_images.command(app, container, launch, rest),
        "env": {
            **{name: inside[name] for name in rest},
            **own,
            # For the next master, which the shim may have to start.
            "PATH": env["PATH"],
            "TONY_HOME": env["TONY_HOME"],
        },
        "image": {
            "program": in_images.engine.program,
            "env": own,
            "name": engine.container_name(container.id),
            "container": container.id,
        },
    }


def _remove_engine_container(folder: ContainerFolder) -> str:
    image = (home.read_json(folder.launch) or {}).get("image")
    return engine.remove_container(image) if image else ""


class RuntimeCommand:
    """The commands that start our own code on this machine."""

    def __init__(self, python: str, runtime: str) -> None:
        self.python = python
        self.runtime = runtime

    def argv(self, verb: str, *words: str) -> List[str]:
        """The command of one verb."""
        return attempts.runtime_argv(self.python, self.runtime, verb, *words)


def container_to_json(container: Container) -> Dict[str, Any]:
    """Plain data."""
    need = container.resources
    return {
        "id": container.id,
        "node": container.node,
        "role": container.role,
        "resources": [need.memory_mb, need.vcores, need.gpus],
        "gpu_ids": list(container.gpu_ids),
        "log_url": container.log_url,
    }


def container_from_json(data: Mapping[str, Any]) -> Container:
    """Read what :func:`container_to_json` wrote."""
    return Container(
        id=data["id"],
        node=data["node"],
        role=data["role"],
        resources=Resources(*data["resources"]),
        gpu_ids=tuple(data["gpu_ids"]),
        log_url=data["log_url"],
    )
