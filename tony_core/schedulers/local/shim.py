"""The shim: stands beside every container and sees to its end.

Theory of operation
===================

A shim is a process of its own, in its own session, with no tie to the master but the files
of its container: it outlives the master, so that a master's death disturbs no training.
It does one thing after the other:

1. *localise*: links the artifacts into ``work/`` (:mod:`localise`);
2. *start*: forks; the child leads a session and process group of its own, with ``work/`` as
   its working folder and its output in the container's log folder. ``process.json`` says
   which process it is, and one byte on ``--started-fd`` tells the pool;
3. *watch*: sleeps in ``sigtimedwait`` until the child ends, somebody sends SIGTERM, or it is
   time to look at the memory of the whole tree (:mod:`watch`);
4. *end*: whatever ended it, no descendant is left: the shim is a subreaper, so every orphan
   among them, in a session of its own or not, becomes its child, and it kills until the
   kernel says that it has none;
5. *say*: ``exit.json``, atomically, with the process's exit code, why it ended, a word for a
   person, and what was used. Then the shim exits, which wakes the pool.

SIGTERM to the shim ends the container as a NodeManager does: TERM to the process group, and
KILL after 250 ms. The file ``stop`` tells that it was the pool who asked.

SIGUSR1 asks it to start the application's next master: what is started inside the container
belongs to it and ends with it, so the executor that has lost its master asks the shim
(:mod:`successor`), and the shim forks it out of its own descendants.

Where the master is dead and this was the last container, nobody is left to start another or to
clean up: before it exits the shim starts a process that does the latter (:mod:`burial`).

A container in an image is docker's or podman's program in the foreground, for all of this; what
that does not end or see, :mod:`engine` does.

Being killed itself (SIGKILL) leaves no ``exit.json``; the pool then looks for what is left.

Light, standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tony_core.exit_causes import decode_status, exit_code_of
from tony_core.schedulers.local import engine, home, processes
from tony_core.schedulers.local.memory_watch import MB, MemoryWatch

GRACE_S = 0.25  # from TERM to KILL
LOOK_S = 5.0  # at the end, for somebody who holds the lock and is no master
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
    """The state of one container's watch."""

    def __init__(self, spec: Mapping[str, Any], folder: home.ContainerFolder) -> None:
        self._spec = spec
        self._folder = folder
        self._pid = 0
        self._status: Optional[int] = None
        self._cpu_s = 0.0
        self._began = time.monotonic()
        self._image: Optional[Mapping[str, Any]] = spec.get("image")
        inside = None if self._image is None else engine.Inside(self._image["container"]).pids
        self._memory = MemoryWatch(int(spec["memory_mb"]), inside)
        self._asked_by = 0  # who sent SIGTERM
        self._over: Optional[str] = None
        self._removed: Optional[str] = None  # from its engine; why not, if not

    def run(self, started_fd: Optional[int]) -> Dict[str, Any]:
        """From the artifacts to the end; returns what ``exit.json`` is to say."""
        try:
            self._localise()
            self._pid = self._start()
        except OSError as error:
            return self._never_ran("%s: %s" % (error.strerror, error.filename))
        except ValueError as error:
            return self._never_ran(str(error))
        identity = processes.Identity.of(self._pid)
        if identity is not None:
            home.write_json(self._folder.process, identity.to_json())
        if started_fd is not None:
            _tell(started_fd)
        self._watch()
        left = self._end_all()
        return self._story(left)

    # ------------------------------------------------------------------ before

    def _localise(self) -> None:
        from tony_core.schedulers.local import localization

        try:
            localization.localise(
                self._spec["artifacts"],
                self._folder.work,
                self._spec["root"],
                self._spec["archives"],
            )
        except localization.LocaliseError as error:
            raise ValueError(str(error)) from None

    def _start(self) -> int:
        """Fork and exec; the errno of a failed exec comes back over a pipe."""
        argv: List[str] = self._spec["argv"]
        env: Dict[str, str] = self._spec["env"]
        reading, writing = os.pipe()  # both close on exec
        pid = os.fork()
        if pid == 0:
            try:
                self._become(argv, env)
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

    def _become(self, argv: List[str], env: Dict[str, str]) -> None:
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
        """Until the process has ended, or has to."""
        look_at = time.monotonic()
        while self._status is None:
            pause = look_at - time.monotonic()
            if pause <= 0:
                self._over = self._memory.look()
                if self._over is not None:
                    return
                look_at = time.monotonic() + self._memory.pause_s
                continue
            got = signal.sigtimedwait(_SIGNALS, pause)
            if got is None:
                continue
            if got.si_signo == signal.SIGCHLD:
                self._reap()
            elif got.si_signo == signal.SIGUSR1:
                self._start_successor()
            elif got.si_signo == signal.SIGTERM:
                self._asked_by = got.si_pid or 1
                self._terminate()
                return

    def _start_successor(self) -> None:
        """As nobody's descendant: its parent ends while we take no orphans for a moment.

        The program's own orphans are the executor's in the meantime: it is a subreaper too.
        """
        argv: List[str] = self._spec["successor"]
        env = {name: self._spec["env"][name] for name in ("PATH", "TONY_HOME")}
        processes.be_subreaper(False)
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
            processes.be_subreaper()

    def _terminate(self) -> None:
        """TERM to the group, and as long as anything lives, up to the grace."""
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
        """Kill every descendant until the kernel says there is none; the ones that stay."""
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
        """What runs in an image need not be descended from us; what its engine keeps goes too."""
        if self._image is None or self._removed is not None:
            return
        self._reap()
        unasked = not self._asked_by and self._over is None
        killed = _exit(self._status)[0] == exit_code_of(signal.SIGKILL)
        if unasked and killed and engine.out_of_memory(self._image):
            self._over = "over the memory limit: ended by the kernel for its control group"
        self._removed = engine.end(self._image, 0 if self._status is not None else self._pid)

    # ------------------------------------------------------------------ the story

    def _story(self, left: List[int]) -> Dict[str, Any]:
        code, words = _exit(self._status)
        cause = "exited"
        if self._over is not None:
            cause, words, code = "memory", self._over, exit_code_of(signal.SIGKILL)
        elif self._asked_by:
            if os.path.exists(self._folder.stop):
                cause, words = "released", "stopped by the master"
            else:
                cause, words = "killed", "ended by SIGTERM from process %d" % self._asked_by
        elif self._image is not None and code in engine.NOT_STARTED:
            said = home.tail(self._folder.process_log, lines=5, limit=2048)
            cause, words = (
                "launch",
                "%s started nothing in the image (%s): %s" % (self._image["program"], words, said),
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
    processes.be_subreaper()
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
            story = shim.run(started_fd)
        except Exception as error:
            shim._end_all()
            story = shim._record(1, "unknown", "the shim failed: %r" % error)
            home.write_json(folder.exit, story)
            raise
        home.write_json(folder.exit, story)
    finally:
        _leave(spec, folder)
    return 0


def _leave(spec: Mapping[str, Any], folder: home.ContainerFolder) -> None:
    """Have the application buried if nobody else will: for its last container, and no other."""
    from tony_core.schedulers.local import mastership

    app = home.AppFolder(os.path.dirname(os.path.dirname(folder.path)))
    end = time.monotonic() + LOOK_S
    try:
        handle = mastership.try_lock(app)
        while handle is None:
            master = mastership.read(app).process
            seen_to = (master is not None and master.alive()) or os.path.exists(folder.stop)
            if seen_to or time.monotonic() > end:
                return
            time.sleep(0.01)  # somebody looks, or starts the next master
            handle = mastership.try_lock(app)
        if mastership.abandoned(app, folder.id):
            env = {name: spec["env"][name] for name in ("PATH", "TONY_HOME")}
            argv = [*spec["burial"], "--lock-fd", str(mastership.LOCK_FD)]
            mastership.hand_over(handle, argv, env)
        else:
            os.close(handle)
    except OSError:
        pass  # its folder is gone: somebody has cleaned up


def _tell(handle: int) -> None:
    try:
        os.write(handle, b"1")
    except OSError:
        pass  # the master that wanted to know is gone
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
