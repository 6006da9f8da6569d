"""The process beside the master that runs ``tony.am.command``.

It is a process of its own for two reasons. Laying out the working folder (unpacking a venv) takes
time and memory that the master lacks. And the command must not outlive the master: this process
sees the master's end as the end of its stdin, and as the subreaper of everything that the command
starts it ends all of that.

It reads one line of JSON from stdin (:func:`encode_request`) and writes one line to stdout.
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


def encode_request(
    command: str,
    env: Mapping[str, str],
    work_dir: str,
    root: str,
    artifacts: Sequence[Mapping[str, Any]],
    grace_s: float,
    localized_dir: str = "",
) -> bytes:
    """Encode what this process has to know.

    ``localized_dir`` is where the scheduler has put the artifacts under their names. The command's
    own folder is made there too; ``work_dir`` gets only its logs.
    """
    return json.dumps(
        {
            "command": command,
            "env": dict(env),
            "work_dir": work_dir,
            "root": root,
            "artifacts": list(artifacts),
            "grace_s": grace_s,
            "localized_dir": localized_dir,
        }
    ).encode()


def main() -> int:
    """Run the command and write how it ended."""
    request = json.loads(sys.stdin.buffer.readline())
    _become_subreaper()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        answer = _run(request)
    except Exception as error:  # the job ends with this message
        answer = {"exit_code": 1, "stderr_tail": [f"{type(error).__name__}: {error}"]}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


def _run(request: Mapping[str, Any]) -> Dict[str, Any]:
    base = request["work_dir"]
    localized_dir = request["localized_dir"]
    cwd = os.path.join(localized_dir or base, "preprocess")
    shutil.rmtree(cwd, ignore_errors=True)
    os.makedirs(cwd)
    lay_out(cwd, request["root"], request["artifacts"], localized_dir)
    parameters_file = os.path.join(localized_dir or base, "preprocess.parameters")
    with open(parameters_file, "wb"):
        pass
    env = {
        **os.environ,
        "HOME": _home(os.environ, cwd),
        **request["env"],
        "TONY_PARAMETERS_FILE": parameters_file,
    }
    out_path = os.path.join(base, "preprocess.stdout")
    err_path = os.path.join(base, "preprocess.stderr")
    try:
        with open(out_path, "wb") as out, open(err_path, "wb") as err:
            child = subprocess.Popen(
                ["/bin/bash", "-c", request["command"]],
                cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
            code = _wait(child)
    finally:
        end_descendants(float(request["grace_s"]))
    return {
        "exit_code": code if code >= 0 else exit_code_of(-code),
        "parameters": parameters(_text(parameters_file), _text(out_path)),
        "stderr_tail": _text(err_path).splitlines()[-20:],
    }


def _home(environment: Mapping[str, str], cwd: str) -> str:
    """Return a writable home folder, as tasks have; clusters' nodes often set /home/."""
    home = environment.get("HOME", "")
    usable = home.startswith("/") and os.path.isdir(home) and os.access(home, os.W_OK)
    return home if usable else cwd


def parameters(from_file: str, stdout: str) -> Optional[str]:
    """Return the parameters for every task: the file's content, else the last line of stdout."""
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
    cwd: str, root: str, artifacts: Sequence[Mapping[str, Any]], localized_dir: str = ""
) -> None:
    """Lay out the working folder as a task has it: the source's content, links to the rest."""
    if not artifacts:
        return
    from tony_core.bundle.localization import localize
    from tony_core.files.artifact import Artifact, Use

    for data in artifacts:
        item = Artifact.from_json(data)
        path = os.path.join(localized_dir, item.name) if localized_dir else localize(item, root)
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
    """Wait for the exit code; raise InterruptedError when the master ends."""
    poller = select.poll()
    poller.register(0, select.POLLIN | select.POLLHUP)
    while child.poll() is None:
        if poller.poll(POLL_S * 1000) and not os.read(0, 4096):
            raise InterruptedError("the master ended")
    return child.returncode


def _interrupt(number: int, frame: object) -> None:
    raise InterruptedError("ended by the master")


def end_descendants(grace_s: float) -> None:
    """Send TERM, then KILL, until no process is left below this one.

    As executors do it (``tony_executor.processes``): TERM goes once to every process, followed by
    CONT, since a stopped one does not take it; and to new processes only until one of them has a
    handler for it: from then on new ones may belong to that handler's work.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + grace_s
    signalled: Set[int] = set()
    handled = False
    while True:
        _reap()
        left = descendants(os.getpid())
        if not left:
            return
        if time.monotonic() > end:
            _send(left, signal.SIGKILL)
        elif not handled:
            fresh = [pid for pid in left if pid not in signalled]
            # Checked before the signal is sent: a handler may remove itself first.
            handled = any(_handles(pid, signal.SIGTERM) for pid in fresh)
            _send(fresh, signal.SIGTERM)
            _send(fresh, signal.SIGCONT)
            signalled.update(fresh)
        time.sleep(POLL_S)


def _send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _handles(pid: int, number: int) -> bool:
    """Whether the process catches, ignores or blocks the signal."""
    bit = 1 << (number - 1)
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            rows = stream.read().splitlines()
    except OSError:
        return False
    masks = (row.split()[1] for row in rows if row.startswith((b"SigCgt", b"SigIgn", b"SigBlk")))
    return any(int(mask, 16) & bit for mask in masks)


def descendants(root: int) -> List[int]:
    """List every process below ``root`` that is not a zombie."""
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
    """Read the end of a file."""
    with open(path, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - limit))
        return stream.read().decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
