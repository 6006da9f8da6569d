"""The program's working folder: new for every session, over what was localized once.

It holds a copy of the source folder's content (links stay links, exec bits and empty folders
stay), so that no other session sees what a session writes there, and a link to everything else
that stands in the container's folder, by its name. A name that the source has too is the source's.

A :class:`FolderMaker` makes it in a child process, which mends the venv as well if it must: a big
source folder must not keep the executor from its heartbeats, and a sweep ends the child like
anything else.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Callable, Iterator, Mapping, NamedTuple, NoReturn, Optional, Set

from tony_core.exit_causes import ExitCause, parse_cause
from tony_core.protocol.reactor import Reactor
from tony_executor.context import ContainerContext
from tony_executor.launch import venv
from tony_executor.launch.spawn import default_signals

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


class FolderError(Exception):
    """The folder cannot be made; ``cause`` goes into its Ended."""

    def __init__(self, message: str, cause: ExitCause = ExitCause.LOCALISATION) -> None:
        super().__init__(message)
        self.cause = cause


def choose_name(work: str, session: int) -> str:
    """``session-N``; a session that is prepared again gets ``session-N-2`` and so on."""
    name = f"{PREFIX}{session}"
    number = 2
    while os.path.lexists(os.path.join(work, name)):
        name = f"{PREFIX}{session}-{number}"
        number += 1
    return name


def make_folder(work: str, name: str, source: str) -> None:
    """Make the folder ``name`` in ``work``; ``source`` is a folder beside it, or empty."""
    target = os.path.join(work, name)
    os.mkdir(target)
    taken: Set[str] = set()
    if source:
        origin = os.path.join(work, source)
        if not os.path.isdir(origin):
            raise FolderError(f"the source folder {source} is not in the container's folder")
        copy_tree(origin, target)
        taken = set(os.listdir(target))
    for entry in list_artifacts(work, source):
        if entry not in taken:
            os.symlink(os.path.join("..", entry), os.path.join(target, entry))


def list_artifacts(work: str, source: str) -> Iterator[str]:
    """The names of localized files and folders, without our code and the source folder."""
    for entry in sorted(os.listdir(work)):
        if entry in (RUNTIME, source) or entry.startswith(OWN_PREFIXES):
            continue
        if not _is_node_managers(work, entry):
            yield entry


def _is_node_managers(work: str, entry: str) -> bool:
    named = entry in NODE_MANAGERS or (entry.startswith(".") and entry.endswith(".crc"))
    return named and not os.path.islink(os.path.join(work, entry))


def copy_tree(origin: str, target: str) -> None:
    """Copy the content of one folder into another that exists."""
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
    """Copy content, exec bits and time of change; the copy of a read-only file is writable."""
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
    """Write small files beside the working folder; refuses names with a slash."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, text in files.items():
        if not name or "/" in name or name in (".", ".."):
            raise FolderError(f"{name!r} is not a file name")
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def free_mb(folder: str) -> float:
    """The free space of its disk; infinite where the system does not tell."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return float("inf")
    return found.f_bavail * found.f_frsize / (1024.0 * 1024.0)


class FolderResult(NamedTuple):
    """The venv to use and a note for the job's story; or an error."""

    venv: Optional[str] = None
    note: str = ""
    error: str = ""
    cause: ExitCause = ExitCause.LOCALISATION


class FolderMaker:
    """Makes the folder in a child process; ``done`` gets the result, unless cancelled.

    Raises OSError where no process can be started.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: ContainerContext,
        name: str,
        source: str,
        done: Callable[[FolderResult], None],
    ) -> None:
        self._reactor = reactor
        self._done = done
        self._output = b""
        self._pipe, writing = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(self._pipe)
            os.close(writing)
            raise
        if pid == 0:
            _make_and_exit(context, name, source, writing)
        os.close(writing)
        reactor.watch(self._pipe, self._read)

    def cancel(self) -> None:
        """Do not wait for it; a sweep ends the child."""
        if self._pipe >= 0:
            self._reactor.unwatch(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _read(self) -> None:
        data = os.read(self._pipe, 65536)
        self._output += data
        if data:
            return
        self.cancel()
        try:
            found = json.loads(self._output.decode())
        except ValueError:
            self._done(FolderResult(error="the working folder was not completed"))
            return
        self._done(FolderResult(**{**found, "cause": parse_cause(found["cause"])}))


def _make_and_exit(context: ContainerContext, name: str, source: str, pipe: int) -> NoReturn:
    """In a process of its own; writes the fields of a :class:`FolderResult` as JSON."""
    made = FolderResult()
    try:
        default_signals()
        overlay = os.path.join(context.work, venv.OVERLAY)
        found = venv.find(context.work, overlay, context.path)
        make_folder(context.work, name, source)
        if found is not None:
            if found.folder == overlay:
                _link_overlay(os.path.join(context.work, name, venv.NAME))
            usable = os.path.isdir(os.path.join(found.folder, "bin"))
            made = FolderResult(found.folder if usable else None, found.note)
    except venv.VenvError as error:
        made = FolderResult(error=str(error), cause=ExitCause.ENVIRONMENT)
    except FolderError as error:
        made = FolderResult(error=str(error), cause=error.cause)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cause = ExitCause.DISK_FULL if is_full else ExitCause.LOCALISATION
        made = FolderResult(error=f"the working folder cannot be made: {error}", cause=cause)
    except BaseException as error:
        made = FolderResult(error=f"the working folder: {error!r}")
    try:
        os.write(pipe, json.dumps(made._asdict()).encode())
    finally:
        os._exit(0)


def _link_overlay(link: str) -> None:
    if os.path.islink(link):
        os.unlink(link)
        os.symlink(os.path.join("..", venv.OVERLAY), link)
