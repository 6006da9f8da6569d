"""An execution's folder made whole, before anything of it travels.

A server of 2.5 fills the folder with symbolic links into its copy of the project. On a node of a
cluster they would lead nowhere, and once the server tidies an old version up they lead nowhere on
its own machine. Each is replaced by another name of the same file, or by a copy where that cannot
be: one step for each, so that the jobs that share the folder always find something there. Servers
of 3.x make such names themselves. What a job of the flow has linked is its own business: only a
link to a file of the same place in another folder is the server's, and only where this program
runs as the server's user: another user's link might lead to a file that only we can read.
A folder that the job names itself (``working.dir``) holds no link of the server's.
"""

from __future__ import annotations

import os
import shutil
from typing import List, Tuple

from tony_azkaban.execution import execution_folder


def make_whole(folder: str, execid: str) -> List[str]:
    """Replace the server's links to files outside of the folder; what could not be, in words."""
    if execution_folder(folder, execid) is None:
        return []
    root = os.path.realpath(folder)
    troubles = []
    for path, target in _leading_out(root):
        scratch = f"{path}.{os.urandom(8).hex()}.tony"
        try:
            try:
                os.link(target, scratch)
            except (
                OSError
            ):  # another disk, or not our file: the kernel allows a name to owners only
                shutil.copy2(target, scratch)
            os.replace(scratch, path)
        except OSError as error:
            troubles.append(
                f"{os.path.relpath(path, root)} is a link to {target}, which only this machine has,"
                f" and stays one: {error.strerror}"
            )
            if os.path.lexists(scratch):
                os.unlink(scratch)
    return troubles


def _leading_out(root: str) -> List[Tuple[str, str]]:
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if not os.path.islink(path) or os.lstat(path).st_uid != os.geteuid():
                    continue
                target = os.path.realpath(path)
            except OSError:
                continue  # another job of the flow has taken it away
            place = os.sep + os.path.relpath(path, root)
            outside = not target.startswith(root + os.sep)
            if outside and target.endswith(place) and os.path.isfile(target):
                found.append((path, target))
    return found
