"""The process beside the master that runs ``tony.am.command``.

A process of its own, because laying out the working folder (unpacking a venv) takes time
and memory that the master has not got, and because the command must not outlive the
master: this process sees the master's end as the end of its standard input, and it is the
subreaper of everything the command starts, so nothing is left.

In: one line of JSON on stdin (see :func:`spec`), then silence. Out: one line on stdout.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from tony_core.exit_causes import exit_code_of

PARAMETERS_LINE = "Model parameters: "
MAX_PARAMETERS = 100 * 1024  # one environment variable of every task
POLL_S = 0.03
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def spec(
    command: str,
    env: Mapping[str, str],
    work_dir: str,
    root: str,
    artifacts: Sequence[Mapping[str, Any]],
    grace_s: float,
    localised: str = "",
) -> bytes:
    """What this process is told.

    ``localised`` is where the scheduler has put the artifacts under their names already; the
    command's own folder is made there too, ``work_dir`` being for its logs alone.
    """
    return json.dumps(
        {
            "command": command,
            "env": dict(env),
            "work_dir": work_dir,
            "root": root,
            "artifacts": list(artifacts),
            "grace_s": grace_s,
            "localised": localised,
        }
    ).encode()


def main() -> int:
    """Run it, and say how it ended."""
    told = json.loads(sys.stdin.buffer.readline())
    _become_subreaper()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        answer = _run(told)
    except Exception as error:  # whatever went wrong is the answer, and the job's end
        answer = {"exit_code": 1, "stderr_tail": [f"{type(error).__name__}: {error}"]}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


def _run(told: Mapping[str, Any]) -> Dict[str, Any]:
    base = told["work_dir"]
    localised = told["localised"]
    cwd = os.path.join(localised or base, "preprocess")
    shutil.rmtree(cwd, ignore_errors=True)
    os.makedirs(cwd)
    lay_out(cwd, told["root"], told["artifacts"], localised)
    parameters_file = os.path.join(localised or base, "preprocess.parameters")
    with open(parameters_file, "wb"):
        pass
    env = {
        **os.environ,
        "HOME": _home(os.environ, cwd),
        **told["env"],
        "TONY_PARAMETERS_FILE": parameters_file,
    }
    out_path = os.path.join(base, "preprocess.stdout")
    err_path = os.path.join(base, "preprocess.stderr")
    try:
        with open(out_path, "wb") as out, open(err_path, "wb") as err:
            child = subprocess.Popen(
                ["/bin/bash", "-c", told["command"]],
                cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
            code = _wait(child)
    finally:
        end_descendants(float(told["grace_s"]))
    return {
        "exit_code": code if code >= 0 else exit_code_of(-code),
        "parameters": parameters(_text(parameters_file), _text(out_path)),
        "stderr_tail": _text(err_path).splitlines()[-20:],
    }


def _home(environment: Mapping[str, str], cwd: str) -> str:
    """A folder that can be written, as tasks have it: nodes of a cluster say /home/."""
    home = environment.get("HOME", "")
    usable = home.startswith("/") and os.path.isdir(home) and os.access(home, os.W_OK)
    return home if usable else cwd


def parameters(from_file: str, stdout: str) -> Optional[str]:
    """What every task is to know: the file's content, else the last line of stdout."""
    found: Optional[str] = from_file.strip("\n") or None
    if found is None:
        lines = [line for line in stdout.splitlines() if line.strip()]
        if lines and lines[-1].startswith(PARAMETERS_LINE):
            found = lines[-1][len(PARAMETERS_LINE) :]
    if found is not None and ("\0" in found or len(found.encode()) > MAX_PARAMETERS):
        raise ValueError(
            f"what tony.am.command wrote for the tasks cannot be an environment variable:"
            f" at most {MAX_PARAMETERS} bytes and no NUL; write a file and name it instead"
        )
    return found


def lay_out(
    cwd: str, root: str, artifacts: Sequence[Mapping[str, Any]], localised: str = ""
) -> None:
    """The working folder, as a task has it: the source's content, links to the rest."""
    if not artifacts:
        return
    from tony_core.bundle.unpack import localize
    from tony_core.files.artifact import Artifact, Use

    for data in artifacts:
        item = Artifact.from_json(data)
        path = os.path.join(localised, item.name) if localised else localize(item, root)
        if item.use is Use.SOURCE:
            shutil.copytree(path, cwd, symlinks=True, dirs_exist_ok=True)
            _make_writable(cwd)
        else:
            os.symlink(path, os.path.join(cwd, item.name))


def _make_writable(folder: str) -> None:
    for base, _, files in os.walk(folder):
        for path in [base, *(os.path.join(base, name) for name in files)]:
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode | 0o200)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; the master's end ends it."""
    poller = select.poll()
    poller.register(0, select.POLLIN | select.POLLHUP)
    while child.poll() is None:
        if poller.poll(POLL_S * 1000) and not os.read(0, 4096):
            raise InterruptedError("the master ended")
    return child.returncode


def _interrupt(number: int, frame: object) -> None:
    raise InterruptedError("ended by the master")


def end_descendants(grace_s: float) -> None:
    """TERM, then KILL, until nothing is left below this process.

    As executors do it (``tony_executor.processes``): TERM goes once to every process, followed by
    CONT, since a stopped one does not hear it; and to newcomers only until it has gone to one
    that minds it. From then on they may be what that one does with its grace.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + grace_s
    told: Set[int] = set()
    minded = False
    while True:
        _reap()
        left = descendants(os.getpid())
        if not left:
            return
        if time.monotonic() > end:
            _send(left, signal.SIGKILL)
        elif not minded:
            fresh = [pid for pid in left if pid not in told]
            # Asked before any is told: a handler's first act may be to take itself away.
            minded = any(_minds(pid, signal.SIGTERM) for pid in fresh)
            _send(fresh, signal.SIGTERM)
            _send(fresh, signal.SIGCONT)
            told.update(fresh)
        time.sleep(POLL_S)


def _send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _minds(pid: int, number: int) -> bool:
    """Whether the signal does more, or less, than what it does by default."""
    bit = 1 << (number - 1)
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            rows = stream.read().splitlines()
    except OSError:
        return False
    masks = (row.split()[1] for row in rows if row.startswith((b"SigCgt", b"SigIgn", b"SigBlk")))
    return any(int(mask, 16) & bit for mask in masks)


def descendants(root: int) -> List[int]:
    """Every process below ``root`` that is not a zombie."""
    children: Dict[int, List[int]] = {}
    dead = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stream:
                fields = stream.read().rpartition(b")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
        if fields[0] == b"Z":
            dead.add(int(name))
    out: List[int] = []
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            todo.append(pid)
            if pid not in dead:
                out.append(pid)
    return out


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _become_subreaper() -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _text(path: str, limit: int = 1 << 20) -> str:
    """The end of a file."""
    with open(path, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - limit))
        return stream.read().decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
