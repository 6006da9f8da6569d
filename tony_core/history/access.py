"""Who besides its owner may read a job's history: the modes of its folders and files.

The scheduler's own place (``$TONY_HOME/history``, ``ROOT/history`` on HDFS) is private to its
owner: mode 0700, which is restored where it was more open.

A place that the job or the site names (``tony.history.location``) may be shared. Its mode decides:
where all users may list it, all users may read a job's history in it; where its group may, that
group, if what is made there belongs to it (always on HDFS, on this machine by the set-group-ID
bit). Otherwise, and where the place had to be made, history is private. Only its owner ever
writes it.

For a portal that shows many users' jobs a site makes a place into which all users write and which
only the portal's group lists: mode 1773 on HDFS, 3773 on this machine, and owned by the portal's
user. There the group may write into a job's folder, too: what is old could not be removed else.

A job's owner is not in that group, and a kernel takes the set-group-ID bit from whatever such a
user gives a mode to. So there the folder is made with its mode at once, by mkdir(1): a umask is
a whole process's.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, Mapping, Optional, Tuple

from tony_core.files.local import user_name
from tony_core.files.location import is_remote, join, local_path, parent
from tony_core.files.port import FileSystem, Stat
from tony_core.files.registry import filesystem

PRIVATE = 0o700
_SET_GROUP_ID = 0o2000
_STICKY = 0o1000
_MKDIR = ("/bin/mkdir", "/usr/bin/mkdir")
_MAKE_S = 30.0  # for it to start and end


def prepare(files: FileSystem, folder: str, location: str) -> Tuple[int, str]:
    """Make a job's history folder: the mode of its files, and what had to be changed for it.

    ``location`` is the place that the job names; in any other it is private.
    """
    root = parent(folder)
    named = bool(location) and root == parent(join(location, "job"))
    mode = _mode_of(files, root)
    changed = ""
    if mode is None:
        files.mkdir(root, PRIVATE)
    elif not named and mode & 0o077:
        try:
            files.chmod(root, PRIVATE)
            changed = f"{root} was open to other users (mode {mode:o}): it is private now"
        except OSError as error:
            changed = (
                f"{root} is open to other users (mode {mode:o}) and cannot be made private:"
                f" {error.strerror or error}"
            )
    shared = _shared(mode, is_remote(root)) if named and mode is not None else PRIVATE
    if shared & _SET_GROUP_ID:
        changed = _make_for_group(local_path(folder), shared)
    else:
        files.mkdir(folder, shared)
    _check_owner(folder)
    return file_mode(files, folder), changed


def file_mode(files: FileSystem, folder: str) -> int:
    """The mode of the files in a job's history folder: the users who may enter it may read them."""
    return 0o600 | ((_mode_of(files, folder) or 0) & 0o044)


def with_owner(job: Mapping[str, Any], folder: str, found: Optional[Stat] = None) -> Dict[str, Any]:
    """The job with the folder's owner for its user; a link's owner is who made the link."""
    try:
        if is_remote(folder):
            owner = (found or filesystem(folder).stat(folder)).owner
        else:
            owner = user_name(os.lstat(local_path(folder)).st_uid)
    except OSError:
        owner = ""
    return {**job, "user": owner} if owner else dict(job)


def _mode_of(files: FileSystem, location: str) -> Optional[int]:
    """Its mode; None where there is nothing, :data:`PRIVATE` where the place knows no modes."""
    try:
        mode = files.stat(location).mode
    except FileNotFoundError:
        return None
    return PRIVATE if mode is None else mode


def _shared(mode: int, remote: bool) -> int:
    """The mode of a job's folder in a place of that mode."""
    if mode & 0o005 == 0o005:
        return 0o755
    if mode & 0o050 != 0o050:
        return PRIVATE
    # Where only the group may write, the users are in it: they must not remove each other's.
    is_portals = mode & _STICKY and mode & 0o023 == 0o023
    folder = 0o770 if is_portals else 0o750
    if remote:
        return folder
    return _SET_GROUP_ID | folder if mode & _SET_GROUP_ID else PRIVATE


def _make_for_group(path: str, mode: int) -> str:
    """Make a folder of the group of the one above it; why it is private where that is not so."""
    if not os.path.isdir(path):
        import subprocess  # few places are shared like this

        for program in _MKDIR:
            if os.access(program, os.X_OK):
                command = [program, "--", path]
                umask = ~mode & 0o777
                subprocess.run(
                    command, umask=umask, timeout=_MAKE_S, capture_output=True, check=False
                )
                break
    if not os.path.isdir(path):
        os.mkdir(path, PRIVATE)  # raises the reason, or is as private as can be
    found = os.lstat(path)
    above = os.stat(os.path.dirname(path))
    is_mine = found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode)
    if is_mine and (found.st_gid, stat.S_IMODE(found.st_mode)) != (above.st_gid, mode):
        os.chmod(path, PRIVATE)
        return (
            f"{path} does not belong to the group of the folder above it as that asks for (mode"
            f" {stat.S_IMODE(above.st_mode):o}): it is private now"
        )
    return ""


def _check_owner(folder: str) -> None:
    """Another user who made the folder first could replace what is written in it."""
    if is_remote(folder) or os.geteuid() == 0:
        return
    owner = os.lstat(local_path(folder)).st_uid
    if owner != os.geteuid():
        raise PermissionError(1, f"belongs to the user with the uid {owner}", local_path(folder))
