"""Who is an application's master, and how the next one is started.

The lock of ``master.lock`` is the mastership: whoever holds it is the master or about to
start it, and it goes with the last process that holds it, however that ends. A starter takes
it, writes the attempt's number, and hands it to the new master as an open file; at no moment
in between is it free. The file's text says which attempt it is, and, once the master runs,
which process.

Light, standard library only, Python 3.8: executors start it every two seconds while their
master is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from tony_core.schedulers.local import home, processes
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.processes import Identity

LOCK_FD = 9  # the number under which a master inherits the lock

ENDED_STATES = frozenset(("SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT"))


class Mastership(NamedTuple):
    """What the lock's file says."""

    attempt: int = 0  # 0: no master was ever started
    process: Optional[Identity] = None  # None: it is being started


def try_lock(folder: AppFolder) -> Optional[int]:
    """The lock as an open file, or None when somebody holds it."""
    handle = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def read(folder: AppFolder) -> Mastership:
    """Who the master is, or was."""
    data = home.read_json(folder.lock) or {}
    attempt = data.get("attempt", 0)
    return Mastership(attempt if isinstance(attempt, int) else 0, Identity.from_json(data))


def write(handle: int, attempt: int, process: Optional[Identity]) -> None:
    """Say who the master is; by whoever holds the lock."""
    data: Dict[str, Any] = {"attempt": attempt}
    if process is not None:
        data.update(process.to_json())
    text = json.dumps(data).encode()
    # One write, padded over whatever longer text was there: no reader sees half of it.
    os.pwrite(handle, text.ljust(200) + b"\n", 0)


def runtime_argv(python: str, runtime: str, verb: str, *words: str) -> List[str]:
    """How our own code is started."""
    return [python, "-I", "-S", runtime, verb, *words]


def master_argv(folder: AppFolder, app: Mapping[str, Any], attempt: int) -> List[str]:
    """How a master is started, exactly."""
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
    """What its environment is, exactly."""
    return {**app["environment"], "TONY_HOME": folder.home.root}


def may_start(folder: AppFolder, app: Optional[Mapping[str, Any]]) -> bool:
    """Whether another attempt is in order; to be asked with the lock held."""
    if app is None or os.path.exists(folder.kill):
        return False
    if app.get("host") != processes.host() or app.get("boot") != processes.boot_id():
        return False
    status = home.read_json(folder.status)
    if status is not None and status.get("state") in ENDED_STATES:
        return False
    most = app.get("max_attempts")
    return isinstance(most, int) and read(folder).attempt < most


def living_containers(folder: AppFolder) -> List[str]:
    """Containers whose shim runs and has not written down their end."""
    found = []
    for container_id in folder.container_ids():
        container = folder.container(container_id)
        shim = Identity.from_json(home.read_json(container.shim))
        if shim is not None and shim.alive() and not os.path.exists(container.exit):
            found.append(container_id)
    return found


def abandoned(folder: AppFolder, last: str) -> bool:
    """Whether nothing lives but (maybe) that container, so that nobody starts another master;
    to be asked with the lock held."""
    app, status = home.read_json(folder.app), home.read_json(folder.status) or {}
    if app is None or status.get("state") in ENDED_STATES:
        return False
    return not set(living_containers(folder)) - {last}


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
            _become(folder, argv, env, attempt, handle)
        finally:
            os._exit(127)
    return attempt


def _become(
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
    _keep(handle)
    for signal_number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(argv[0], argv, env)
    except OSError as error:
        os.write(2, ("cannot start %s: %s\n" % (argv[0], error.strerror)).encode())


def _keep(handle: int) -> None:
    """Of all that is open beyond the usual three the lock alone, under its number."""
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
            _keep(handle)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execve(argv[0], argv, env)
        finally:
            os._exit(127)
    os.close(handle)
