"""The shim: a process beside every container that starts it, watches it and ends it.

Theory of operation
===================

A shim is a process of its own, in its own session, with no tie to the master but the files
of its container: it outlives the master, so that a master's death disturbs no training.
It does one thing after the other:

1. *localize*: links the artifacts into ``work/``;
2. *start*: forks; the child leads a session and process group of its own, with ``work/`` as
   its working folder and its output in the container's log folder. ``process.json`` names
   the process, and one byte on ``--started-fd`` reports the start to the pool;
3. *watch*: sleeps in ``sigtimedwait`` until the child ends, SIGTERM comes, or it is time to
   measure the memory of the whole tree;
4. *end*: whatever ended it, no descendant is left: the shim is a subreaper, so every orphan
   among them, in a session of its own or not, becomes its child, and it kills until the
   kernel says that it has none;
5. *record*: ``exit.json``, atomically, with the process's exit code, why it ended, a message,
   and what was used. Then the shim exits, which wakes the pool.

SIGTERM to the shim ends the container as a NodeManager does: TERM to the process group, and
KILL after 250 ms. The file ``stop`` marks that the pool has requested it.

SIGUSR1 makes it start the application's next master: what is started inside the container
belongs to it and ends with it, so the executor that has lost its master signals the shim
(:mod:`attempts`), and the shim forks it out of its own descendants.

Where the master is dead and this was the last container, no process is left to start another or
to clean up: before it exits the shim starts one that cleans up (:mod:`finalize`).

A container in an image is docker's or podman's program in the foreground, for all of this; what
that neither ends nor measures, :mod:`engine` does.

When the shim itself is killed (SIGKILL) there is no ``exit.json``; the pool then ends what is left.

Light, standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tony_core.exit_causes import decode_status, exit_code_of
from tony_core.schedulers.local import attempts, engine, home, processes
from tony_core.schedulers.local.processes import MB, MemoryWatch

GRACE_S = 0.25  # from TERM to KILL
LOCK_S = 5.0  # at the end, for a process that holds the lock and is no master
UNKILLABLE_S = 4.0  # a process in an uninterruptible wait is left to the kernel after this
_SIGNALS = (
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
)


class Shim:
    """Starts, watches and ends a container."""

    def __init__(self, spec: Mapping[str, Any], folder: home.ContainerFolder) -> None:
        self._spec = spec
        self._folder = folder
        self._pid = 0
        self._status: Optional[int] = None
        self._cpu_s = 0.0
        self._began = time.monotonic()
        self._image: Optional[Mapping[str, Any]] = spec.get("image")
        inside = (
            None if self._image is None else engine.EngineContainer(self._image["container"]).pids
        )
        self._memory = MemoryWatch(int(spec["memory_mb"]), inside)
        self._terminated_by = 0  # the sender of SIGTERM
        self._over_limit: Optional[str] = None
        self._removed: Optional[str] = None  # from its engine; why not, if not

    def run(self, started_fd: Optional[int]) -> Dict[str, Any]:
        """Localize, start, watch and end the container; returns its exit record."""
        try:
            self._localize()
            self._pid = self._start()
        except OSError as error:
            return self._never_ran("%s: %s" % (error.strerror, error.filename))
        except ValueError as error:
            return self._never_ran(str(error))
        identity = processes.ProcessIdentity.of(self._pid)
        if identity is not None:
            home.write_json(self._folder.process, identity.to_json())
        if started_fd is not None:
            _report_start(started_fd)
        self._watch()
        left = self._end_all()
        return self._exit_record(left)

    # ------------------------------------------------------------------ before

    def _localize(self) -> None:
        try:
            localize(
                self._spec["artifacts"],
                self._folder.work,
                self._spec["root"],
                self._spec["archives"],
            )
        except LocalizationError as error:
            raise ValueError(str(error)) from None

    def _start(self) -> int:
        """Fork and exec; a failed exec sends its errno over a pipe."""
        argv: List[str] = self._spec["argv"]
        env: Dict[str, str] = self._spec["env"]
        reading, writing = os.pipe()  # both close on exec
        pid = os.fork()
        if pid == 0:
            try:
                self._exec(argv, env)
            except OSError as error:
                os.write(writing, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            failed = stream.read()
        if failed:
            os.waitpid(pid, 0)
            number = int(failed)
            raise ValueError("cannot start %s: %s" % (argv[0], os.strerror(number)))
        return pid

    def _exec(self, argv: List[str], env: Dict[str, str]) -> None:
        os.setsid()
        os.chdir(self._folder.work)
        output = os.open(
            self._folder.process_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in (signal.SIGPIPE, *_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(argv[0], argv, env)

    # ------------------------------------------------------------------ while it runs

    def _watch(self) -> None:
        """Wait until the process has ended, or must be ended."""
        measure_at = time.monotonic()
        while self._status is None:
            pause = measure_at - time.monotonic()
            if pause <= 0:
                self._over_limit = self._memory.check()
                if self._over_limit is not None:
                    return
                measure_at = time.monotonic() + self._memory.pause_s
                continue
            got = signal.sigtimedwait(_SIGNALS, pause)
            if got is None:
                continue
            if got.si_signo == signal.SIGCHLD:
                self._reap()
            elif got.si_signo == signal.SIGUSR1:
                self._start_successor()
            elif got.si_signo == signal.SIGTERM:
                self._terminated_by = got.si_pid or 1
                self._terminate()
                return

    def _start_successor(self) -> None:
        """Not as our descendant: its parent ends while we take no orphans for a moment.

        The program's own orphans are the executor's in the meantime: it is a subreaper too.
        """
        argv: List[str] = self._spec["successor"]
        env = {name: self._spec["env"][name] for name in ("PATH", "TONY_HOME")}
        processes.set_subreaper(False)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    if os.fork() == 0:
                        os.setsid()
                        signal.pthread_sigmask(signal.SIG_SETMASK, ())
                        os.execve(argv[0], argv, env)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
        finally:
            processes.set_subreaper()

    def _terminate(self) -> None:
        """Send TERM to the group, and wait for its end up to the grace."""
        try:
            os.killpg(self._pid, signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            pass
        end = time.monotonic() + GRACE_S
        while self._reap():
            left = end - time.monotonic()
            if left <= 0:
                return
            signal.sigtimedwait((signal.SIGCHLD,), left)

    def _reap(self) -> bool:
        """Wait for all that has ended; False when there is no child left at all."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._cpu_s += usage.ru_utime + usage.ru_stime
            if pid == self._pid:
                self._status = status

    def _end_all(self) -> List[int]:
        """Kill every descendant until none is left; returns those that cannot be killed."""
        self._end_image()
        end = time.monotonic() + UNKILLABLE_S
        while self._reap():
            left = processes.descendants(os.getpid())
            if time.monotonic() > end:
                return left
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            signal.sigtimedwait((signal.SIGCHLD,), 0.01)
        return []

    def _end_image(self) -> None:
        """End what runs in an image (it need not be our descendant), and what its engine keeps."""
        if self._image is None or self._removed is not None:
            return
        self._reap()
        unrequested = not self._terminated_by and self._over_limit is None
        killed = _exit(self._status)[0] == exit_code_of(signal.SIGKILL)
        if unrequested and killed and engine.out_of_memory(self._image):
            self._over_limit = "over the memory limit: ended by the kernel for its control group"
        self._removed = engine.end_container(
            self._image, 0 if self._status is not None else self._pid
        )

    # ------------------------------------------------------------------ the exit record

    def _exit_record(self, left: List[int]) -> Dict[str, Any]:
        code, words = _exit(self._status)
        cause = "exited"
        if self._over_limit is not None:
            cause, words, code = "memory", self._over_limit, exit_code_of(signal.SIGKILL)
        elif self._terminated_by:
            if os.path.exists(self._folder.stop):
                cause, words = "released", "stopped by the master"
            else:
                cause, words = "killed", "ended by SIGTERM from process %d" % self._terminated_by
        elif self._image is not None and code in engine.NOT_STARTED:
            output = home.tail(self._folder.process_log, lines=5, limit=2048)
            cause, words = (
                "launch",
                "%s started nothing in the image (%s): %s"
                % (self._image["program"], words, output),
            )
        if self._removed:
            words += "; left behind: %s" % self._removed
        if left:
            words += "; left behind, as they cannot be killed: %s" % "; ".join(
                "pid %d (state %s) %s" % (pid, processes.state(pid), processes.command(pid))
                for pid in left
            )
        return self._record(code, cause, words)

    def _never_ran(self, why: str) -> Dict[str, Any]:
        return self._record(127, "launch", why)

    def _record(self, code: int, cause: str, words: str) -> Dict[str, Any]:
        return {
            "exit_code": code,
            "cause": cause,
            "diagnostics": words,
            "usage": {
                "wall_s": round(time.monotonic() - self._began, 3),
                "cpu_s": round(self._cpu_s, 3),
                "max_rss_mb": self._memory.peak // MB,
            },
            "at": time.time(),
        }


def main(argv: Sequence[str]) -> int:
    """``--spec containers/CONTAINER/launch.json [--started-fd N]``"""
    words = dict(zip(argv[::2], argv[1::2]))
    path = words["--spec"]
    started_fd = int(words["--started-fd"]) if "--started-fd" in words else None
    if started_fd is not None:
        os.set_inheritable(started_fd, False)
    # Blocked, not handled: sigtimedwait takes them one by one, and none is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    processes.set_subreaper()
    container = os.path.dirname(os.path.abspath(path))
    folder = home.ContainerFolder(
        os.path.dirname(os.path.dirname(container)), os.path.basename(container)
    )
    spec = home.read_json(path)
    if spec is None:
        sys.stderr.write("%s holds no container\n" % path)
        return 2
    shim = Shim(spec, folder)
    try:
        try:
            record = shim.run(started_fd)
        except Exception as error:
            shim._end_all()
            record = shim._record(1, "unknown", "the shim failed: %r" % error)
            home.write_json(folder.exit, record)
            raise
        home.write_json(folder.exit, record)
    finally:
        _finalize_if_last(spec, folder)
    return 0


def _finalize_if_last(spec: Mapping[str, Any], folder: home.ContainerFolder) -> None:
    """Start the finalization of an application whose master is dead, after its last container."""
    app = home.AppFolder(os.path.dirname(os.path.dirname(folder.path)))
    end = time.monotonic() + LOCK_S
    try:
        handle = attempts.try_lock(app)
        while handle is None:
            master = attempts.read(app).process
            handled = (master is not None and master.alive()) or os.path.exists(folder.stop)
            if handled or time.monotonic() > end:
                return
            time.sleep(0.01)  # a reader of the status, or the start of the next master
            handle = attempts.try_lock(app)
        if attempts.is_abandoned(app, folder.id):
            env = {name: spec["env"][name] for name in ("PATH", "TONY_HOME")}
            argv = [*spec["finalize"], "--lock-fd", str(attempts.LOCK_FD)]
            attempts.hand_over(handle, argv, env)
        else:
            os.close(handle)
    except OSError:
        pass  # its folder is gone: it has been cleaned up


def _report_start(handle: int) -> None:
    try:
        os.write(handle, b"1")
    except OSError:
        pass  # the master is gone
    os.close(handle)


def _exit(status: Optional[int]) -> Tuple[int, str]:
    """The exit code as a shell gives it, and in words."""
    if status is None:
        return exit_code_of(signal.SIGKILL), "killed"
    code, number = decode_status(status)
    if not number:
        return code, "exit code %d" % code
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "signal %d" % number
    return code, "ended by %s" % name


# ------------------------------------------------------------------ localization


class LocalizationError(Exception):
    """An artifact cannot be put into the working folder; the message says which and why."""


def localize(
    artifacts: Sequence[Mapping[str, Any]], work: str, root: str, archives: Sequence[int]
) -> None:
    """Link the artifacts into the working folder: what is on this machine as it is.

    :mod:`tony_core.bundle.localization` unpacks archives and fetches remote files once for all
    containers, in a child process, so that the shim does not keep its code.
    ``artifacts`` are ``Artifact.to_json()``; ``root`` is the store's; ``archives``: the megabytes
    and members that an archive may unpack to.
    """
    for item in artifacts:
        name = str(item["name"])
        if not name or name in (".", "..") or "/" in name:
            raise LocalizationError("the artifact %r cannot be a file's name" % name)
        target = os.path.join(work, name)
        if os.path.lexists(target):
            raise LocalizationError("two artifacts are called %s; give one another name" % name)
        source = home.path_of_uri(str(item["uri"]))
        if not source or (item["kind"] == "archive" and not os.path.isdir(source)):
            source = _unpack_in_child(item, root, archives)
        elif not os.path.exists(source):
            raise LocalizationError(
                "%s does not exist any more: %s (staged from %s)" % (name, source, item["source"])
            )
        os.symlink(source, target)


def _unpack_in_child(item: Mapping[str, Any], root: str, archives: Sequence[int]) -> str:
    """The path that :func:`_unpack` returns, in a forked child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 1
        try:
            os.write(writing, os.fsencode(_unpack(item, root, archives)))
            code = 0
        except BaseException as error:  # no exception may reach the shim's own code
            os.write(writing, (str(error) or repr(error)).encode("utf-8", "replace")[:4000])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        output = stream.read()
    _, status = os.waitpid(pid, 0)
    if status:
        why = output.decode("utf-8", "replace") or "status %d" % status
        raise LocalizationError("%s cannot be localized: %s" % (item["name"], why))
    return os.fsdecode(output)


def _unpack(item: Mapping[str, Any], root: str, archives: Sequence[int]) -> str:
    from tony_core.bundle import localization
    from tony_core.files.artifact import Artifact

    return localization.localize(
        Artifact.from_json(item), root, localization.ArchiveLimits.of(*archives)
    )
