"""The files of the embedded scheduler, and how the small ones are written.

::

    $TONY_HOME                  ~/.tony unless the environment says otherwise; one per user
      ledger/HOST.json          what each container has reserved (ledger.py)
      history/APP
      apps/APP/
        app.json                what was submitted (applications.py)
        status.json             its status
        kill.json               a request to end it: {reason, by, at}
        master.lock             flock of the running master; {attempt, pid, start, boot}
        master.json             where the master listens (the master's own file)
        job/                    the staged job folder, with the secret
        master/                 the master's working folder: master-N.stdout, master-N.stderr
        containers/CONTAINER/
          launch.json           what the shim runs (0600)
          container.json        which container, and for which task it was launched
          shim.json             the shim's process
          process.json          the process that it started
          stop                  the pool requested its end
          exit.json             how it ended, written by the shim
          ended.json            ... and that this was reported
          env                   the variables of a container in an image (images.py), 0600
          secret                0600; gone at the end, as launch.json is
          work/                 the process's working folder
        logs/CONTAINER/

All JSON files are replaced atomically; none is ever read half-written.

Light, standard library only, Python 3.8: the shim imports it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, Dict, List, Mapping, Optional, Tuple

from tony_core.files.durable import replace_file
from tony_core.jsontext import read_object

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


def is_safe_name(name: str) -> bool:
    """Whether it can be a file's name here: no separators, nothing hidden."""
    return bool(name) and name[0] not in ".-" and set(name) <= _SAFE and len(name) <= 200


def home_root(env: Optional[Mapping[str, str]] = None) -> str:
    """$TONY_HOME, or ~/.tony."""
    named = (os.environ if env is None else env).get("TONY_HOME", "")
    return os.path.abspath(os.path.expanduser(named or "~/.tony"))


def why_relative(env: Optional[Mapping[str, str]] = None) -> str:
    """Why a TONY_HOME relative to the current folder is refused; empty if it is absolute."""
    named = (os.environ if env is None else env).get("TONY_HOME", "")
    if named and not os.path.isabs(os.path.expanduser(named)):
        return "TONY_HOME is %r: it must be an absolute path, the same from every folder" % named
    return ""


def why_unusable(env: Optional[Mapping[str, str]] = None) -> str:
    """Why nothing can be kept there; empty if all is well. It need not be there yet."""
    relative = why_relative(env)
    if relative:
        return relative
    root = home_root(env)
    advice = "set TONY_HOME to a folder that you can write"
    path = root
    while True:
        try:
            found = os.stat(path)
            break
        except FileNotFoundError:
            path = os.path.dirname(path)  # to be made, below what there is
        except OSError as error:
            return "%s cannot be TonY's folder (%s); %s" % (root, error.strerror, advice)
    if not stat.S_ISDIR(found.st_mode):
        return "%s cannot be TonY's folder: %s is no folder; %s" % (root, path, advice)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return "%s cannot be TonY's folder: %s cannot be written; %s" % (root, path, advice)
    for folder, found in [*_links_and_folder(root), *_ours(root)]:
        known = (os.geteuid(), 0) if folder == root else (os.geteuid(),)
        if found.st_uid not in known:
            return "%s belongs to another user (uid %d); %s" % (folder, found.st_uid, advice)
    return ""


def _links_and_folder(root: str) -> List[Tuple[str, os.stat_result]]:
    """The folder, and the link to it where it is one; an administrator may have made both."""
    try:
        return [(root, os.lstat(root)), (root, os.stat(root))]
    except OSError:
        return []


def _ours(root: str) -> List[Tuple[str, os.stat_result]]:
    """The folders that TonY made there."""
    found = []
    for name in ("apps", "history", "ledger", "store"):
        path = os.path.join(root, name)
        try:
            found.append((path, os.lstat(path)))
        except OSError:
            continue
    return found


def list_open_folders(root: str) -> List[str]:
    """The folders that another user could read, or replace what they hold."""
    found = [path for path, known in _ours(root) if _is_folder(known) and known.st_mode & 0o077]
    if _is_replaceable(root):
        found.insert(0, root)
    return found


def close_to_others(root: str) -> None:
    """Take other users' rights from these; TONY_HOME itself may still be entered and listed."""
    for path in list_open_folders(root):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        try:
            os.chmod(path, mode & ~0o022 if path == root else mode & 0o700)
        except PermissionError:
            pass  # another's, and it may be so: a folder with the sticky bit, an ACL


def _is_replaceable(root: str) -> bool:
    try:
        found = os.stat(root)
    except OSError:
        return False
    return bool(found.st_mode & 0o022) and not found.st_mode & stat.S_ISVTX


def _is_folder(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode)


def why_not_written(path: str) -> str:
    """Why a folder can neither be written nor made; empty if it can.

    By trying: permissions do not tell it of read-only and virtual file systems, nor for root.
    """
    above = os.path.abspath(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    probe = os.path.join(above, ".tony-%d-%s" % (os.getpid(), os.urandom(4).hex()))
    try:
        os.mkdir(probe, 0o700)
        os.rmdir(probe)
    except OSError as error:
        return "%s: %s" % (above, error.strerror)
    return ""


class ContainerFolder:
    """The files of a container."""

    def __init__(self, app_path: str, container_id: str) -> None:
        self.id = container_id
        self.path = os.path.join(app_path, "containers", container_id)
        self.logs = os.path.join(app_path, "logs", container_id)
        self.launch = os.path.join(self.path, "launch.json")
        self.container = os.path.join(self.path, "container.json")
        self.shim = os.path.join(self.path, "shim.json")
        self.process = os.path.join(self.path, "process.json")
        self.stop = os.path.join(self.path, "stop")
        self.exit = os.path.join(self.path, "exit.json")
        self.ended = os.path.join(self.path, "ended.json")
        self.secret = os.path.join(self.path, "secret")
        self.work = os.path.join(self.path, "work")
        self.shim_log = os.path.join(self.path, "shim.log")
        self.process_log = os.path.join(self.logs, "executor.log")


class AppFolder:
    """The files of an application."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.app_id = os.path.basename(self.path)
        self.home = Home(os.path.dirname(os.path.dirname(self.path)))
        self.app = os.path.join(self.path, "app.json")
        self.status = os.path.join(self.path, "status.json")
        self.kill = os.path.join(self.path, "kill.json")
        self.lock = os.path.join(self.path, "master.lock")
        self.master_file = os.path.join(self.path, "master.json")
        self.job = os.path.join(self.path, "job")
        self.secret = os.path.join(self.job, "secret")
        self.master = os.path.join(self.path, "master")
        self.containers = os.path.join(self.path, "containers")
        self.logs = os.path.join(self.path, "logs")

    @property
    def is_own(self) -> bool:
        """Whether it is a folder of this user's: no link, and not what another user put there."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()

    def container(self, container_id: str) -> ContainerFolder:
        """The folder of a container, which may not exist."""
        return ContainerFolder(self.path, container_id)

    def container_ids(self) -> List[str]:
        """Every container that was ever launched here and still has its folder."""
        return [name for name in list_names(self.containers) if is_safe_name(name)]

    def master_log(self, attempt: int, stream: str) -> str:
        """Where that attempt's master writes its ``stdout`` or ``stderr``."""
        return os.path.join(self.master, "master-%d.%s" % (attempt, stream))


class Home:
    """The user's TonY folder on this machine."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.apps = os.path.join(self.root, "apps")
        self.history = os.path.join(self.root, "history")
        self.ledger = os.path.join(self.root, "ledger")

    def app(self, app_id: str) -> AppFolder:
        """The folder of an application, which may not exist."""
        return AppFolder(os.path.join(self.apps, app_id))

    def app_ids(self) -> List[str]:
        """Every application that has a folder."""
        return [name for name in list_names(self.apps) if is_safe_name(name)]


def list_names(folder: str) -> List[str]:
    """The names in a folder, sorted; none when there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def make_folder(path: str) -> str:
    """Make a folder and its missing parents, for this user only."""
    above = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(above):
        make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    return path


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """The object in a file; None when there is no file or (after a power cut) no object."""
    try:
        with open(path, "rb") as stream:
            return read_object(stream.read())
    except (OSError, ValueError):
        return None


def write_json(path: str, data: Mapping[str, Any], sync: bool = False) -> None:
    """Replace a file by this object, which only this user can read.

    ``sync``: what must outlive a power cut. Most files here mean nothing after a restart, which
    ends every process that they are about.
    """
    write_bytes(path, json.dumps(data, separators=(",", ":")).encode("utf-8"), sync)


def write_bytes(path: str, data: bytes, sync: bool = False) -> None:
    """Replace a file atomically; 0600 from its first byte."""
    replace_file(path, data, 0o600, sync)


def is_full(error: OSError) -> bool:
    """Whether it was the disk (or the user's share of it) that had no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def tail(path: str, lines: int = 20, limit: int = 4096) -> str:
    """The last lines of a text file; empty when there are none."""
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - limit))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])


def path_of_uri(uri: str) -> str:
    """The path behind a path or file URL; empty when it is anywhere else."""
    if uri.startswith("file:"):
        path = uri[len("file:") :]
        if path.startswith("//"):
            path = "/" + path[2:].partition("/")[2]
        from urllib.parse import unquote  # much code for the shim

        return unquote(path)
    return "" if "://" in uri else os.path.abspath(uri)
