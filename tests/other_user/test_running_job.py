"""A job that runs beside another user of the machine, who tries what a user can try."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.master.test_master_real import Submitted, a_job, pids_of, until
from tests.second_user import UID, as_stranger, needs_root
from tests.sockets import listening_ports
from tony_core.job.spec import Program
from tony_core.protocol.job_secret import unpack_secret
from tony_core.schedulers.port import AppState

pytestmark = [needs_root, pytest.mark.slow]

MARK = secrets.token_hex(16)  # by chance: the checkout may lie where the other user looks

# Each way in is tried for each thing; a pair of what and where comes back for each that succeeds.
FILES = """
done = []
def attempt(what, path, act):
    try:
        found = act()
    except (OSError, ValueError):
        return
    done.append([what, path, repr(found)[:200]])
    if isinstance(found, int) and not isinstance(found, bool):
        os.close(found)
for path in argument:
    folder, name = os.path.split(path)
    attempt("list", path, lambda: os.listdir(path))
    attempt("read", path, lambda: open(path, "rb").read(100))
    attempt("write", path, lambda: os.open(path, os.O_WRONLY))
    attempt("append", path, lambda: os.open(path, os.O_WRONLY | os.O_APPEND))
    attempt("lock", path, lambda: fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX))
    attempt("create", path, lambda: os.open(path + ".new", os.O_CREAT | os.O_WRONLY))
    attempt("create in", path, lambda: os.open(path + "/new", os.O_CREAT | os.O_WRONLY))
    attempt("replace", path, lambda: os.rename(path, path + ".old"))
    attempt("remove", path, lambda: os.unlink(path))
    attempt("link", path, lambda: os.link(path, "/tmp/of-a-stranger"))
    attempt("chmod", path, lambda: os.chmod(path, 0o777))
    if stat.S_ISSOCK(argument[path]):
        attempt("connect", path, lambda: socket.socket(socket.AF_UNIX).connect(path))
result = done
"""

PROCESSES = """
libc = ctypes.CDLL(None, use_errno=True)
done = []
def attempt(what, pid, act):
    try:
        found = act()
    except (OSError, ValueError):
        return
    done.append([what, pid, repr(found)[:500]])
def ptrace(kind, pid):
    if libc.ptrace(kind, pid, None, None) == -1:
        raise OSError(ctypes.get_errno(), "ptrace")
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def peek(pid):
    mine, theirs = ctypes.create_string_buffer(16), Span(0x400000, 16)
    here = Span(ctypes.cast(mine, ctypes.c_void_p), 16)
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(theirs), 1, 0) == -1:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
def limit(pid):
    if libc.prlimit(pid, 7, (ctypes.c_ulong * 2)(3, 3), None) == -1:
        raise OSError(ctypes.get_errno(), "prlimit")
def read(path):
    found = open(path, "rb").read(100)
    if not found:
        raise ProcessLookupError(path)  # the process is just ending: its files open, and are empty
    return found
for pid in argument:
    for name in ("SIGTERM", "SIGKILL", "SIGUSR1", "SIGSTOP", "SIGCONT", "SIGHUP"):
        number = getattr(signal, name)
        attempt("signal", pid, lambda: os.kill(pid, number))
        attempt("signal the group", pid, lambda: os.killpg(os.getpgid(pid), number))
    for name in ("environ", "mem", "maps", "io", "stack", "auxv"):
        attempt(name, pid, lambda: read(f"/proc/{pid}/{name}"))
    attempt("fd", pid, lambda: os.listdir(f"/proc/{pid}/fd"))
    for name in ("cwd", "root", "exe"):
        attempt(name, pid, lambda: os.readlink(f"/proc/{pid}/{name}"))
    attempt("ptrace", pid, lambda: ptrace(16, pid))
    attempt("ptrace seize", pid, lambda: ptrace(0x4206, pid))
    attempt("process_vm_readv", pid, lambda: peek(pid))
    attempt("nice", pid, lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt("cpus", pid, lambda: os.sched_setaffinity(pid, {0}))
    attempt("limits", pid, lambda: limit(pid))
    attempt("oom", pid, lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"))
lines = {}
for pid in argument:
    try:
        lines[pid] = open(f"/proc/{pid}/cmdline").read()
    except OSError:
        pass
result = [done, lines]
"""

PORTS = """
hello = b"TonY\\0\\2Ed" + bytes(16) + os.urandom(32)
WORDS = [
    b"", b"T", hello[:20], hello, hello + bytes(32), hello + os.urandom(4096), b"\\0" * 100_000,
    bytes.fromhex("160301020001000100fc0303") + bytes(300), b"\\xff" * 3000,
    b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n",
    b"GET /api/job HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n",
    b"GET /logs/worker:0/stdout HTTP/1.0\\r\\n\\r\\n",
    b"GET /api/job HTTP/1.1\\r\\nHost: localhost\\r\\nX-Tony-User: root\\r\\n\\r\\n",
    b"POST /api/kill HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 0\\r\\n\\r\\n",
    b"GET /global_/0 HTTP/1.1\\r\\n\\r\\n",
    b"PUT /tunnel/new HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 0\\r\\n\\r\\n",
    b"GET /tunnel/0/down?at=0 HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n",
    b"PUT /global_/0 HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\nhi",
    b"DELETE /global_/0 HTTP/1.1\\r\\n\\r\\n", b"cmd=initack pmiid=1\\n", b"\\n" * 1000,
]
ports, silent_for = argument
answers = {}
def call(port):
    sock = socket.socket()
    sock.settimeout(0.25)
    sock.connect(("127.0.0.1", port))
    return sock
for port in ports:
    data = b""
    for words in WORDS:
        try:
            with call(port) as sock:
                sock.sendall(words)
                data += sock.recv(65536)
        except OSError:
            pass
    answers[port] = data.decode("latin-1")
held = []
for port in ports:  # silence, and a byte now and then
    for number in range(80):
        try:
            held.append(call(port))
            held[-1].sendall(hello[: number % 3])
        except OSError:
            break
time.sleep(silent_for)
for sock in held:
    try:
        sock.send(b"x")
    except OSError:
        pass
taken = []
for port in ports:
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        for host in ("127.0.0.1", ""):
            with socket.socket() as sock:
                try:
                    for option in options:
                        sock.setsockopt(socket.SOL_SOCKET, option, 1)
                    sock.bind((host, port))
                    sock.listen()
                    taken.append(port)
                except OSError:
                    pass
result = [answers, taken]
"""

ELSEWHERE = """
found = []
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "/dev/mqueue"):
    for top, folders, files in os.walk(folder):
        for name in files + folders:
            path = os.path.join(top, name)
            try:
                text = open(path, "rb").read(1 << 20) if os.path.isfile(path) else b""
            except OSError:
                text = b""
            if argument["app_id"] in path or any(m.encode() in text for m in argument["marks"]):
                found.append(path)
        if top.count("/") > 3:
            folders[:] = []
with open("/proc/net/unix") as table:
    found += [line for line in table if argument["app_id"] in line]
for name in ("sysvipc/shm", "sysvipc/msg", "sysvipc/sem", "locks", "keys"):
    try:
        found += [line for line in open("/proc/" + name) if argument["app_id"] in line]
    except OSError:
        pass
result = found
"""


@pytest.fixture
def job(
    open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tuple[Submitted, Path, Path]]:
    """A job of two programs that run until a file is there, in a home that was there before it."""
    home, go = open_folder / "home", tmp_path / "go"
    home.mkdir()
    home.chmod(0o755)
    monkeypatch.setenv("TONY_HOME", str(home))
    command = f'echo "$TASK_INDEX of session $SESSION_ID"; until [ -e {go} ]; do sleep 0.1; done'
    program = Program(shell_env=(("MY_TOKEN", MARK),))
    submitted = Submitted(home, a_job(command, framework="horovod", program=program))
    submitted.running(2)
    yield submitted, home, go
    go.touch()
    submitted.end()
    until(lambda: not pids_of(submitted.app_id), "every process to go")


def marks_of(submitted: Submitted) -> List[str]:
    """What no other user may see."""
    folder = Path(submitted.folder.path)
    files = [Path(submitted.folder.secret), *folder.glob("containers/*/secret")]
    key = json.loads((folder / "client-key.json").read_text())["key"]  # of tunnels
    return [MARK, key, *(unpack_secret(path.read_bytes()).secret.hex() for path in files)]


def processes(submitted: Submitted) -> List[int]:
    """Whatever has the job's home in its environment, or its folder in its command line."""
    found = {submitted.master_pid(), *pids_of(submitted.app_id)}
    marks = (f"TONY_HOME={submitted.home.root}".encode(), submitted.folder.path.encode())
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                answer = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if any(mark in answer for mark in marks):
                    found.add(int(entry.name))
    return sorted(found)


def kinds(home: Path) -> Dict[str, int]:
    """Everything below the home, and what it is."""
    found = {str(home): home.lstat().st_mode}
    for top, folders, files in os.walk(home):
        for name in folders + files:
            path = os.path.join(top, name)
            found[path] = os.lstat(path).st_mode
    return found


def test_what_another_user_tries(job: Tuple[Submitted, Path, Path]) -> None:
    submitted, home, go = job
    its_files(home)
    its_processes(submitted)
    its_ports(submitted, home)
    argument = {"app_id": submitted.app_id, "marks": marks_of(submitted)}
    assert as_stranger(ELSEWHERE, argument) == []
    # It was not disturbed: one attempt, one session, each program started once.
    seen = submitted.get("api/job")
    assert (seen["session"], seen["attempt"], seen["counts"]["running"]) == (0, 1, 2)
    go.touch()
    status = submitted.end()
    assert status.state is AppState.SUCCEEDED, status.diagnostics + submitted.words()
    assert submitted.logs() == ["0 of session 0\n", "1 of session 0\n"]


def its_files(home: Path) -> None:
    """Nothing below it can be opened, listed, locked, replaced or added to."""
    before = kinds(home)
    assert len(before) > 20
    # The folder itself was there before the job, open to all: so its own names are, and no more.
    done = [found for found in as_stranger(FILES, before) if found[1] != str(home)]
    assert done == []
    assert sorted(os.listdir(home)) == ["apps", "history", "ledger", "store"]
    assert not Path("/tmp/of-a-stranger").exists()
    # What has changed since the summary is in a file that gets a new name with each summary.
    assert {path for path in before if "/live-" not in path} <= set(kinds(home))


def its_processes(submitted: Submitted) -> None:
    """None can be signalled, slowed down or looked into, and a command line says no secret."""
    pids = processes(submitted)
    assert len(pids) >= 5, "master, and for each task a shim, an executor and a program"
    done, lines = as_stranger(PROCESSES, pids)
    assert done == []
    assert len(lines) >= 5, "command lines are for everybody, where /proc is as usual"
    for mark in marks_of(submitted):
        assert mark not in json.dumps(lines)


def its_ports(submitted: Submitted, home: Path) -> None:
    """None says more than a refusal, and none can be taken."""
    ports = listening_ports(processes(submitted))
    assert len(ports) >= 5, "executors and their master, its page, Horovod's rendezvous"
    answers, taken = as_stranger(PORTS, [ports, 2.5], timeout=60)
    assert taken == []
    text = "".join(answers.values())
    for mark in (*marks_of(submitted), submitted.app_id, "worker", "session", str(home)):
        assert mark not in text
    heads = set(re.findall(r"HTTP/1.1 (\d+)", text))
    assert heads <= {"400", "403", "404", "405", "431"}, text


def test_names_that_it_will_want(open_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """A stranger was there first, at every place outside its own folders that the code names."""
    places = [f"/tmp/tony-gpus-{os.geteuid()}", "/tmp/tony", f"/tmp/tony-{os.geteuid()}"]
    free = [path for path in places if not os.path.lexists(path)]
    made = as_stranger("for path in argument: os.mkdir(path, 0o777)\nresult = argument", free)
    try:
        assert all(os.lstat(path).st_uid == UID for path in made)
        home, go = open_folder / "home", tmp_path / "go"
        go.touch()
        monkeypatch.setenv("TONY_HOME", str(home))
        submitted = Submitted(home, a_job("true"))
        assert submitted.end().state is AppState.SUCCEEDED, submitted.words()
        assert all(os.listdir(path) == [] for path in made)
        until(lambda: not pids_of(submitted.app_id), "every process to go")
    finally:
        for path in made:
            os.rmdir(path)
