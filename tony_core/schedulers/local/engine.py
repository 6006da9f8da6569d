"""Runs docker or podman, with a deadline each: for the shim, the master and the client.

A container in an image is started by its shim as ``docker run ...`` in the foreground
(:mod:`images` builds the command), so that its output and its exit code are those of any other
process. But the processes inside need not be the shim's descendants (docker's are its daemon's),
and to kill the program ``docker run`` ends nothing. So two things mark what belongs to a container:
the variable in the environment, which all of them inherit, and the name that we give.

Light, standard library only, Python 3.8: the shim imports it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from tony_core.exit_causes import decode_status
from tony_core.schedulers.local import processes

REMOVE_S = 20.0
INSPECT_S = 10.0
EXIT_S = 1.0  # for the program in the foreground to notice that its container has ended
NOT_STARTED = (125, 126, 127)  # an engine's own exit codes, and no executor's


def container_name(container_id: str) -> str:
    """The container's name at the engine."""
    return "tony-" + container_id


def run(argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> Tuple[int, str]:
    """Run it; returns its exit code and output, and 124 when it had to be killed in the end.

    Not subprocess, which costs the shim a megabyte; no fork, as a master has threads.
    """
    reading, writing = os.pipe()
    actions: List[Any] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
        (os.POSIX_SPAWN_DUP2, writing, 2),
    ]
    try:
        pid = os.posix_spawn(argv[0], list(argv), dict(env), file_actions=actions, setsigmask=())
    except OSError as error:
        os.close(reading)
        return 127, "%s: %s" % (argv[0], error.strerror)
    finally:
        os.close(writing)
    end = time.monotonic() + limit_s
    output, status = _read(reading, pid, end)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return 124, "%s did not answer within %g s" % (" ".join(argv[:2]), limit_s)
    return decode_status(status)[0], output.decode("utf-8", "replace").strip()


def _read(handle: int, pid: int, end: float) -> Tuple[bytes, Optional[int]]:
    """Its output until it ends, even if others keep the pipe open; no status: it still runs."""
    output, status, is_open = b"", None, True
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    try:
        while True:
            if status is None:
                ended, found = os.waitpid(pid, os.WNOHANG)
                status = found if ended else None
            if is_open and poller.poll(20 if status is None else 0):
                got = os.read(handle, 65536)
                output, is_open = (output + got)[-65536:], bool(got)
            elif status is not None:
                break
            elif not is_open:
                time.sleep(0.005)
            if time.monotonic() >= end:
                break
    finally:
        os.close(handle)
    return output, status


# -------------------------------------------------------------------------- one container
# ``image`` is what launch.json has under that name: program, env, name, container.


def list_pids(container_id: str) -> List[int]:
    """The processes in the image; for its shim, which has the mark as well."""
    mark = b"TONY_CONTAINER_ID=" + os.fsencode(container_id)
    found = {
        pid for pid in processes.all_pids() if pid != os.getpid() and processes.has_mark(pid, mark)
    }
    for pid in sorted(found):
        found.update(processes.descendants(pid))
    return sorted(pid for pid in found if processes.start_time(pid) is not None)


class EngineContainer:
    """Lists the processes of one container again and again: remembers the first one.

    The executor is first, and takes all orphans among its descendants.
    """

    def __init__(self, container_id: str) -> None:
        self._id = container_id
        self._first: Optional[processes.ProcessIdentity] = None

    def pids(self) -> List[int]:
        """The processes in the image; none before it has started."""
        if self._first is None or not self._first.alive(self._first.boot):
            found = list_pids(self._id)
            self._first = processes.ProcessIdentity.of(min(found, key=_age)) if found else None
            return found
        return [self._first.pid, *processes.descendants(self._first.pid)]


def _age(pid: int) -> Tuple[int, int]:
    return processes.start_time(pid) or 1 << 62, pid


def end_container(image: Mapping[str, Any], client: int = 0) -> str:
    """End its processes, and remove what the engine keeps; returns why that failed, or ''.

    ``client``: our child that runs in the foreground, and gets a moment to end.
    """
    _kill(image["container"])
    if client:
        late = time.monotonic() + EXIT_S
        while processes.start_time(client) is not None and time.monotonic() < late:
            time.sleep(0.01)
        try:
            os.kill(client, signal.SIGKILL)
        except ProcessLookupError:
            pass
    why = remove_container(image)
    _kill(image["container"])
    return why


def _kill(container_id: str, limit_s: float = 4.0) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        left = list_pids(container_id)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # another user's, by a mapping of ids: the engine's to end
        time.sleep(0.01)


def remove_container(image: Mapping[str, Any]) -> str:
    """Remove the container of that name; returns why that failed, or ''."""
    try:
        argv = [str(image["program"]), "rm", "-f", str(image["name"])]
        env = {str(name): str(value) for name, value in image["env"].items()}
    except (KeyError, TypeError, AttributeError):
        return "a container in an image, whose record (launch.json) is damaged"
    code, output = run(argv, env, REMOVE_S)
    if code == 0 or "no such container" in output.lower():
        return ""
    return "%s failed (%d): %s" % (" ".join(argv), code, output[-500:])


def out_of_memory(image: Mapping[str, Any]) -> bool:
    """Whether the kernel ended it at its memory limit; to be called before it is removed."""
    argv = [image["program"], "inspect", "--format", "{{.State.OOMKilled}}", image["name"]]
    code, output = run(argv, image["env"], INSPECT_S)
    return code == 0 and output.strip().lower() == "true"
