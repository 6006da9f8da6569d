"""The program's working folder: new for every session, over what was localised once.

It holds a copy of the source folder's content (links stay links, exec bits and empty
folders stay), so that what a session writes there no other session sees, and a link to
everything else that stands in the container's folder, by its name. A name that the source
has too is the source's.

Made in a child process: a big source folder must not keep the executor from its
heartbeats, and a sweep ends it like anything else.
"""

from __future__ import annotations

import os
from typing import Iterator, Mapping, Set

from tony_core.exit_causes import ExitCause

RUNTIME = "tony-runtime"
CACHE = ".tony-cache"  # what the program fetches; it outlives sessions
PREFIX = "session-"
FILES_PREFIX = "files-"
OWN_PREFIXES = (PREFIX, FILES_PREFIX, "report-", ".tony-")
# What a NodeManager writes into a container's folder; localised things are links there.
NODE_MANAGERS = {
    "container_tokens", "launch_container.sh", "default_container_executor.sh",
    "default_container_executor_session.sh", "docker_container_executor.sh",
    "docker_container_executor_session.sh", "yarn_provided.keystore", "yarn_provided.truststore",
    "sysfs", "tmp",
}  # fmt: skip
_BLOCK = 1024 * 1024


class LayoutError(Exception):
    """The folder cannot be made; ``cause`` goes into its Ended."""

    def __init__(self, message: str, cause: ExitCause = ExitCause.LOCALISATION) -> None:
        super().__init__(message)
        self.cause = cause


def new_name(work: str, session: int) -> str:
    """``session-N``; a session that is prepared again gets ``session-N-2`` and so on."""
    name = f"{PREFIX}{session}"
    number = 2
    while os.path.lexists(os.path.join(work, name)):
        name = f"{PREFIX}{session}-{number}"
        number += 1
    return name


def lay_out(work: str, name: str, source: str) -> None:
    """Make the folder ``name`` in ``work``; ``source`` is a folder beside it, or empty."""
    target = os.path.join(work, name)
    os.mkdir(target)
    taken: Set[str] = set()
    if source:
        origin = os.path.join(work, source)
        if not os.path.isdir(origin):
            raise LayoutError(f"the source folder {source} is not in the container's folder")
        copy_tree(origin, target)
        taken = set(os.listdir(target))
    for entry in artifacts(work, source):
        if entry not in taken:
            os.symlink(os.path.join("..", entry), os.path.join(target, entry))


def artifacts(work: str, source: str) -> Iterator[str]:
    """The names of what was localised, other than our code and the source folder."""
    for entry in sorted(os.listdir(work)):
        if entry in (RUNTIME, source) or entry.startswith(OWN_PREFIXES):
            continue
        if not _is_node_managers(work, entry):
            yield entry


def _is_node_managers(work: str, entry: str) -> bool:
    named = entry in NODE_MANAGERS or (entry.startswith(".") and entry.endswith(".crc"))
    return named and not os.path.islink(os.path.join(work, entry))


def copy_tree(origin: str, target: str) -> None:
    """The content of one folder into another that exists."""
    todo = [(origin, target)]
    while todo:
        here, there = todo.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                into = os.path.join(there, entry.name)
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), into)
                elif entry.is_dir():
                    os.mkdir(into)
                    todo.append((entry.path, into))
                elif entry.is_file():
                    copy_file(entry.path, into)


def copy_file(origin: str, target: str) -> None:
    """Content, exec bits and time of change; what the store made read-only is writable."""
    source = os.open(origin, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(source)
        mode = (status.st_mode & 0o777) | 0o600
        into = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(into, mode)
            left = status.st_size
            while True:
                sent = os.sendfile(into, source, None, _BLOCK) if left else 0
                if not sent:
                    break
                left -= sent
            os.utime(into, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(into)
    finally:
        os.close(source)


def write_files(folder: str, files: Mapping[str, str]) -> None:
    """Small files beside the working folder; a name with a slash would leave it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, text in files.items():
        if not name or "/" in name or name in (".", ".."):
            raise LayoutError(f"{name!r} is no name for a file")
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def free_mb(folder: str) -> float:
    """The room left on its disk; infinite where the system does not say."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return float("inf")
    return found.f_bavail * found.f_frsize / (1024.0 * 1024.0)
