"""A master's attempts: the lock that the master holds, and the start of the next one.

The holder of ``master.lock`` is the master or is about to start it; the lock goes with the last
process that holds it, however that ends. A starter takes it, writes the attempt's number, and
passes it to the new master as an open file; at no moment in between is it free. The file's text is
the attempt's number and, once the master runs, its process.

``local-successor --app-dir DIR``: started by the client for the first master, and by shims for
the next ones. ``local-successor --app-dir DIR --container ID``: run by an executor that has
lost its master, inside its container. What it started there would end with the container, so
it has the container's shim start one outside (SIGUSR1), and waits until there is one. However many
run at once, the lock lets one through. The exit code says what happened.

Light, standard library only, Python 3.8: executors start it every two seconds while their
master is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from tony_core.schedulers.local import home, processes
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.processes import ProcessIdentity

LOCK_FD = 9  # the number under which a master inherits the lock

#: The exit codes of ``local-successor``.
STARTED = 0  # a master was started
USAGE = 2
HELD = 3  # another process is the master, or starts one
OVER = 4  # the application has ended, is being killed, or has no attempts left
SHIM_S = 5.0  # for a shim to start a master

ENDED_STATES = frozenset(("SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT"))


class MasterAttempt(NamedTuple):
    """The master's attempt, as the lock's file has it."""

    attempt: int = 0  # 0: no master was ever started
    process: Optional[ProcessIdentity] = None  # None: it is being started


def try_lock(folder: AppFolder, shared: bool = False) -> Optional[int]:
    """Take the lock, as an open file; None when another process holds it.

    ``shared``: together with others that look; FileNotFoundError where no master ever had it.
    """
    flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
    handle = os.open(folder.lock, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def read(folder: AppFolder) -> MasterAttempt:
    """The attempt that runs, or that ran last."""
    data = home.read_json(folder.lock) or {}
    attempt = data.get("attempt", 0)
    return MasterAttempt(
        attempt if isinstance(attempt, int) else 0, ProcessIdentity.from_json(data)
    )


def write(handle: int, attempt: int, process: Optional[ProcessIdentity]) -> None:
    """Write down the attempt and its process; only with the lock held."""
    data: Dict[str, Any] = {"attempt": attempt}
    if process is not None:
        data.update(process.to_json())
    text = json.dumps(data).encode()
    # One write, padded over whatever longer text was there: no reader sees half of it.
    os.pwrite(handle, text.ljust(200) + b"\n", 0)


def runtime_argv(python: str, runtime: str, verb: str, *words: str) -> List[str]:
    """The command that starts our own code."""
    return [python, "-I", "-S", runtime, verb, *words]


def master_argv(folder: AppFolder, app: Mapping[str, Any], attempt: int) -> List[str]:
    """The exact command of a master."""
    return runtime_argv(
        app["python"],
        app["runtime"],
        "master",
        "--scheduler",
        "local",
        "--app-dir",
        folder.path,
        "--attempt",
        str(attempt),
        "--lock-fd",
        str(LOCK_FD),
    )


def master_env(folder: AppFolder, app: Mapping[str, Any]) -> Dict[str, str]:
    """The exact environment of a master."""
    return {**app["environment"], "TONY_HOME": folder.home.root}


def may_start(folder: AppFolder, app: Optional[Mapping[str, Any]]) -> bool:
    """Whether another attempt is allowed; only with the lock held."""
    if app is None or os.path.exists(folder.kill):
        return False
    if app.get("host") != processes.host() or app.get("boot") != processes.boot_id():
        return False
    status = home.read_json(folder.status)
    if status is not None and status.get("state") in ENDED_STATES:
        return False
    most = app.get("max_attempts")
    return isinstance(most, int) and read(folder).attempt < most


def running_containers(folder: AppFolder) -> List[str]:
    """Containers whose shim runs and has not written down their end."""
    found = []
    for container_id in folder.container_ids():
        container = folder.container(container_id)
        shim = ProcessIdentity.from_json(home.read_json(container.shim))
        if shim is not None and shim.alive() and not os.path.exists(container.exit):
            found.append(container_id)
    return found


def is_abandoned(folder: AppFolder, last: str) -> bool:
    """Whether no container but that one runs, so that no executor will start another master.

    Only with the lock held.
    """
    app, status = home.read_json(folder.app), home.read_json(folder.status) or {}
    if app is None or status.get("state") in ENDED_STATES:
        return False
    return not set(running_containers(folder)) - {last}


def start_next(folder: AppFolder, app: Mapping[str, Any], handle: int) -> int:
    """Start the next attempt as a detached process that holds the lock; its number.

    Forks: only for a process with a single thread, made for this and nothing else.
    """
    attempt = read(folder).attempt + 1
    write(handle, attempt, None)
    home.make_folder(folder.master)
    argv = master_argv(folder, app, attempt)
    env = master_env(folder, app)
    pid = os.fork()
    if pid == 0:
        try:
            _exec_master(folder, argv, env, attempt, handle)
        finally:
            os._exit(127)
    return attempt


def _exec_master(
    folder: AppFolder, argv: List[str], env: Dict[str, str], attempt: int, handle: int
) -> None:
    os.setsid()
    os.chdir(folder.master)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(folder.master_log(attempt, "stdout"), flags, 0o640)
    errors = os.open(folder.master_log(attempt, "stderr"), flags, 0o640)
    for number, handle_of in enumerate((nothing, output, errors)):
        os.dup2(handle_of, number)
    _close_all_but(handle)
    for signal_number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(argv[0], argv, env)
    except OSError as error:
        os.write(2, ("cannot start %s: %s\n" % (argv[0], error.strerror)).encode())


def _close_all_but(handle: int) -> None:
    """Close all files but the standard streams and the lock, which gets its number."""
    if handle == LOCK_FD:
        os.set_inheritable(handle, True)
    else:
        os.dup2(handle, LOCK_FD)
    os.closerange(LOCK_FD + 1, 1024)
    os.closerange(3, LOCK_FD)


def hand_over(handle: int, argv: List[str], env: Mapping[str, str]) -> None:
    """Start a detached process that holds the lock from now on; forks, as :func:`start_next`."""
    if os.fork() == 0:
        try:
            os.setsid()
            _close_all_but(handle)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execve(argv[0], argv, env)
        finally:
            os._exit(127)
    os.close(handle)


# ------------------------------------------------------------------ local-successor


def main(argv: Sequence[str]) -> int:
    """``local-successor``: start the next master, if that is allowed."""
    words = dict(zip(argv[::2], argv[1::2]))
    if len(argv) % 2 or "--app-dir" not in words or set(words) - {"--app-dir", "--container"}:
        sys.stderr.write("usage: local-successor --app-dir DIR [--container ID]\n")
        return USAGE
    folder = AppFolder(words["--app-dir"])
    if not os.path.isdir(folder.path):
        return OVER  # collected as garbage meanwhile
    handle = try_lock(folder)
    if handle is None:
        return HELD
    app = home.read_json(folder.app)
    if app is None or not may_start(folder, app):
        return OVER
    if "--container" in words:
        before = read(folder).attempt
        os.close(handle)
        return _launch_in_shim(folder, words["--container"], before)
    start_next(folder, app, handle)
    return STARTED


def _launch_in_shim(folder: AppFolder, container_id: str, before: int) -> int:
    """Have the container's shim start the next attempt; HELD when it has not within the limit."""
    shim = ProcessIdentity.from_json(home.read_json(folder.container(container_id).shim))
    if shim is None or not shim.send(signal.SIGUSR1):
        return OVER  # without its shim the container is about to end
    end = time.monotonic() + SHIM_S
    while time.monotonic() < end:
        if read(folder).attempt > before:
            return STARTED
        time.sleep(0.01)
    return HELD
