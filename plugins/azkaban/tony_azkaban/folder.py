"""An execution's folder: the server's symbolic links in it, and the outputs that its files name.

A server of 2.5 fills the folder with symbolic links into its copy of the project. On a node of a
cluster they would lead nowhere, and once the server removes an old version they lead nowhere on its
own machine. So before anything is staged, a hard link replaces each, or a copy where that fails: in
one step each, so that the jobs that share the folder always find the file. Servers of 3.x make hard
links themselves. Links that a job of the flow made stay. The server's are those to a file at the
same path in another folder, and only where this program runs as the server's user: another user's
link might lead to a file that only this program can read. A folder that the job names itself
(``working.dir``) holds no link of the server's.
"""

from __future__ import annotations

import os
import re
import shutil
from itertools import islice
from typing import List, Optional, Set, Tuple

#: The suffixes of a project's files that can name a property.
_OF_FLOW = (".job", ".properties", ".flow", ".project")
_NAMED = re.compile(rb"\$\{(?:[^}:$\n]{1,200}:)?(tony_result\.[!-z|~\x80-\xff]{1,500})\}")
MOST_FOLDERS, MOST_FILES, MOST_BYTES = 20_000, 2000, 1 << 20  # of each


def execution_folder(folder: str, execid: str) -> Optional[str]:
    """The execution's folder, which contains a job's ``folder``; None if that is elsewhere.

    A job can name another folder by ``working.dir``.
    """
    above = os.path.abspath(folder)
    while execid and above != os.path.dirname(above):
        if os.path.basename(above) == execid:
            return above
        above = os.path.dirname(above)
    return None


def replace_links(folder: str, execid: str) -> List[str]:
    """Replace the server's links to files outside of the folder; a warning for each that stays."""
    if execution_folder(folder, execid) is None:
        return []
    root = os.path.realpath(folder)
    warnings = []
    for path, target in _server_links(root):
        scratch = f"{path}.{os.urandom(8).hex()}.tony"
        try:
            try:
                os.link(target, scratch)
            except OSError:  # another disk, or another user's file: only owners may link one
                shutil.copy2(target, scratch)
            os.replace(scratch, path)
        except OSError as error:
            warnings.append(
                f"{os.path.relpath(path, root)} is a link to {target}, which only this machine has,"
                f" and stays one: {error.strerror}"
            )
            if os.path.lexists(scratch):
                os.unlink(scratch)
    return warnings


def _server_links(root: str) -> List[Tuple[str, str]]:
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if not os.path.islink(path) or os.lstat(path).st_uid != os.geteuid():
                    continue
                target = os.path.realpath(path)
            except OSError:
                continue  # another job of the flow has removed it
            place = os.sep + os.path.relpath(path, root)
            outside = not target.startswith(root + os.sep)
            if outside and target.endswith(place) and os.path.isfile(target):
                found.append((path, target))
    return found


def named_in_flow(folder: str, execid: str) -> Set[str]:
    """The outputs of ours that the execution's files name; ``folder`` is a job's.

    In a folder elsewhere (``working.dir`` may be ``/``) it reads only the files directly in it.
    """
    execution = execution_folder(folder, execid)
    found: Set[str] = set()
    files = 0
    for where, _, names in islice(os.walk(execution or folder), MOST_FOLDERS if execution else 1):
        for name in names:
            if name.endswith(_OF_FLOW) and files < MOST_FILES:
                files += 1
                found |= _names_in_file(os.path.join(where, name))
    return found


def _names_in_file(path: str) -> Set[str]:
    try:
        # Does not wait for a pipe that a job of the flow left there.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return names_in(file.read(MOST_BYTES) or b"")
    except OSError:
        return set()


def names_in(data: bytes) -> Set[str]:
    """The outputs of ours that a file's text names: ``${name}``, ``${job:name}``."""
    return {name.decode("utf-8", "replace") for name in _NAMED.findall(data)}
