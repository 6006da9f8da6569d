"""Checks of this machine and this shell for what breaks jobs, each by itself.

Findings for ``tony doctor``. What only asks takes no folder's word for anything it can look up,
and leaves nothing (:func:`check_folder` makes an empty one and takes it away, for modes do not tell
whether one can); :func:`try_files` writes files, so it belongs to the probe.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
from typing import List, Mapping, Optional, Tuple

from tony_core.job.spec import Job
from tony_core.loopback import loopback_address
from tony_core.schedulers.local import home
from tony_core.schedulers.port import CheckResult, Finding

LITTLE_MB = 1024
NEEDED_MB = 32  # by one job that keeps nothing: our own code, its folder, logs and history
RESOLVE_S = 1.5
FEW_FILES, FEW_PROCESSES = 1024, 512
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
_LISTENING = "0A"
_RESOLVE = (
    "import socket, sys; print(*(answer[4][0] for answer in"
    " socket.getaddrinfo(sys.argv[1], None, type=socket.SOCK_STREAM)))"
)
_PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def check_environment(env: Mapping[str, str]) -> List[Finding]:
    """Variables that break programs, or make them slow."""
    found: List[Finding] = []

    def add(name: str, verdict: CheckResult, detail: str, advice: str) -> None:
        found.append(Finding(name, verdict, detail, advice))

    for name in ("PYTHONHOME", "PYTHONPATH"):
        if env.get(name):
            detail = f"{env[name]}: tony and our own code run without it, and jobs do not get it"
            add(name, CheckResult.NOTE, detail, "give it with --shell_env if a program needs it")
    if env.get("PYTHONDONTWRITEBYTECODE"):
        detail = "is set here: Python compiles tony again at each start"
        add("PYTHONDONTWRITEBYTECODE", CheckResult.NOTE, detail, "unset it in this shell")
    proxies = [name for name in _PROXIES if env.get(name)]
    if proxies:
        listed = (env.get("no_proxy") or env.get("NO_PROXY") or "").split(",")
        free = {word.strip() for word in listed}
        if "*" not in free and not {"localhost", _loopback()} <= free:
            detail = f"{proxies[0]} is set, and requests to this machine go through it"
            advice = f"export no_proxy=localhost,{_loopback()} (and what else is near)"
            add("proxy", CheckResult.WRONG, detail, advice)
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    if locale and "utf" not in locale.lower():
        detail = f"{locale} is not UTF-8; programs may fail to write what is not ASCII"
        add("locale", CheckResult.NOTE, detail, "export LANG=C.UTF-8")
    return found or [Finding("environment", CheckResult.OK, "nothing in it that breaks jobs")]


def check_limits() -> Finding:
    """The limits on one user's files and processes."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    low = []
    if files != resource.RLIM_INFINITY and files < FEW_FILES:
        low.append(f"ulimit -n {FEW_FILES} (it is {files})")
    if processes != resource.RLIM_INFINITY and processes < FEW_PROCESSES:
        low.append(f"ulimit -u {FEW_PROCESSES} (it is {processes})")
    if low:
        detail = "too few files or processes at a time for a job of some tasks"
        advice = "or more: " + ", ".join(low) + "; or ask who runs this machine"
        return Finding("limits", CheckResult.WRONG, detail, advice)
    return Finding(
        "limits", CheckResult.OK, f"{_count(files)} files, {_count(processes)} processes"
    )


def _count(limit: int) -> str:
    return "any number of" if limit == resource.RLIM_INFINITY else str(limit)


# -------------------------------------------------------------------------- folders


def _why_not_written(path: str) -> str:
    """Why a file cannot be created, by trying: root too fails in /proc or a read-only mount."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".tony-doctor-", dir=path))
    except OSError as error:
        # The free space is checked below.
        return "" if home.is_full(error) else error.strerror or str(error)
    return ""


def check_folder(
    what: str,
    path: str,
    advice: str,
    noexec: CheckResult = CheckResult.WRONG,
    needed_mb: int = NEEDED_MB,
) -> Finding:
    """Check that a folder exists or can be made, is writable and executable, and has room."""
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return Finding(what, CheckResult.WRONG, f"{path}: {there} is no folder", advice)
    about = os.statvfs(there)
    why = _why_not_written(there)
    if why:
        return Finding(what, CheckResult.WRONG, f"{there} cannot be written ({why})", advice)
    if about.f_flag & os.ST_NOEXEC:
        detail = f"{there} is mounted noexec: no program in it can be run"
        return Finding(what, noexec, detail, advice)
    if not about.f_blocks:
        detail = f"{there} does not report its free space"
        return Finding(
            what, CheckResult.NOTE, detail, f"see that files can be kept there, or {advice}"
        )
    free = about.f_bavail * about.f_frsize >> 20
    if free < LITTLE_MB:
        verdict = CheckResult.WRONG if free < needed_mb else CheckResult.NOTE
        return Finding(what, verdict, f"{path} has {free} MB left", f"make room, or {advice}")
    return Finding(what, CheckResult.OK, f"{path}, {free} MB free")


def check_tmpdir(env: Mapping[str, str]) -> Finding:
    """Check the folder of programs' temporary files."""
    named = env.get("TMPDIR")
    advice = "set TMPDIR to a folder on this machine's own disk"
    if named and not os.path.isdir(named):
        return Finding("TMPDIR", CheckResult.WRONG, f"there is no folder {named}", advice)
    # Nothing of ours is run from there; programs that compile something for themselves may.
    try:
        path = named or tempfile.gettempdir()
    except OSError as error:
        return Finding("TMPDIR", CheckResult.WRONG, error.strerror or str(error), advice)
    return check_folder("TMPDIR", path, advice, noexec=CheckResult.NOTE, needed_mb=1)


def try_files(root: str) -> Finding:
    """Write, read back, run and lock a file below ``root``, as staging and jobs do."""
    what, advice = "staging", "set TONY_HOME to a folder on this machine's own disk"
    text = b"#!/bin/sh\nexit 7\n" + b"# what is staged comes back as it was\n" * 1000
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=root) as aside:
            program = os.path.join(aside, "program")
            handle = os.open(program, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
            with os.fdopen(handle, "wb") as stream:
                stream.write(text)
                os.fsync(stream.fileno())
            with open(program, "rb") as stream:
                if hashlib.sha256(stream.read()).digest() != hashlib.sha256(text).digest():
                    return Finding(
                        what, CheckResult.WRONG, f"{root} gives back other bytes", advice
                    )
            why = _not_run(program) or _not_locked(program)
    except OSError as error:
        return Finding(what, CheckResult.WRONG, f"{root}: {error.strerror}", advice)
    if why:
        return Finding(what, CheckResult.WRONG, f"{root}: {why}", advice)
    return Finding(what, CheckResult.OK, f"{root} is written, read, run from and locked")


def _not_run(program: str) -> str:
    try:
        done = subprocess.run([program], stdin=subprocess.DEVNULL, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a program in it does not run ({error})"
    return "" if done.returncode == 7 else f"a program in it ends with {done.returncode}"


def _not_locked(path: str) -> str:
    with open(path, "rb") as one, open(path, "rb") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"its file system knows no locks ({error.strerror})"
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
    return "two processes can hold one lock of its file system"


# -------------------------------------------------------------------------- the network


def check_ports(job: Job) -> Finding:
    """Check the range of tasks' ports, which is below that of outgoing connections."""
    low, high = ephemeral()
    span = job.network.port_range
    what = "ports"
    if span is None:
        if low <= 1024 + 512:
            detail = (
                f"connections take their ports from {low}-{high}, which leaves tasks none below"
            )
            return Finding(what, CheckResult.WRONG, detail, "set tony.task.port-range")
        return Finding(what, CheckResult.OK, f"below {low} (connections use {low}-{high})")
    name = f"tony.task.port-range {span[0]}-{span[1]}"
    taken = {port for port in _listening() if span[0] <= port <= span[1]}
    if len(taken) == span[1] - span[0] + 1:
        detail = f"{name}: every one of them is taken"
        return Finding(
            what, CheckResult.WRONG, detail, "end what listens there, or name another range"
        )
    if span[1] >= low and span[0] <= high:
        detail = f"{name} reaches into {low}-{high}, which this machine's connections use"
        return Finding(what, CheckResult.NOTE, detail, f"choose one below {low}: some may be taken")
    return Finding(what, CheckResult.OK, f"{name}, {len(taken)} of them taken")


def ephemeral() -> Tuple[int, int]:
    """The ports that the kernel gives to connections."""
    try:
        with open(EPHEMERAL, encoding="ascii") as stream:
            low, high = stream.read().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32768, 60999


def _listening() -> List[int]:
    found = []
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name, encoding="ascii") as stream:
                rows = [line.split() for line in stream][1:]
        except OSError:
            continue
        found += [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENING]
    return found


def check_host_names(host: str, localhost: str = "localhost") -> Finding:
    """Check that localhost and this machine's own name lead to this machine."""
    what = "host names"
    at = _addresses(localhost)
    wanted = _loopback()
    if not wanted:
        detail = "this machine has no loopback address, neither 127.0.0.1 nor ::1"
        return Finding(what, CheckResult.WRONG, detail, "ip link set lo up")
    advice = f"put {wanted} localhost into /etc/hosts"
    if at is None:
        detail = f"{localhost} is not known within {RESOLVE_S:g} s"
        return Finding(what, CheckResult.NOTE, detail, advice)
    if wanted not in at:
        detail = f"{localhost} is {', '.join(at) or 'unknown'}, not {wanted}"
        return Finding(what, CheckResult.WRONG, detail, advice)
    mine = _addresses(host)
    advice = f"put 127.0.1.1 {host} into /etc/hosts: gloo and MPI ask for this name"
    if not mine:
        detail = f"this machine's own name, {host}, cannot be resolved within {RESOLVE_S:g} s"
        return Finding(what, CheckResult.NOTE, detail, advice)
    if not any(_is_here(address) for address in mine):
        detail = f"this machine's own name, {host}, is {mine[0]}, which is not this machine"
        return Finding(what, CheckResult.NOTE, detail, advice)
    return Finding(what, CheckResult.OK, f"localhost, and {host} at {mine[0]}")


def _addresses(host: str) -> Optional[List[str]]:
    """The addresses of a name; None when there is no answer in time.

    Asked in a process of its own, since a lookup cannot be interrupted otherwise.
    """
    argv = [sys.executable, "-I", "-S", "-c", _RESOLVE, host]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RESOLVE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return list(dict.fromkeys(done.stdout.split()))


def _loopback() -> str:
    """The loopback address that masters and programs use; empty where there is none."""
    try:
        return loopback_address()
    except OSError:
        return ""


def _is_here(address: str) -> bool:
    """Whether an address is this machine's; with ``ip_nonlocal_bind`` every address is."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((address, 0))
    except OSError:
        return False
    return True
