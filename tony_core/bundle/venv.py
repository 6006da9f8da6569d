"""Does a virtual environment hold the Python that the job will ask it for?

Asked on the client, where the answer can still be read at leisure. A Python that was named
and is not in there refuses the job; a doubt is a warning: the node may be laid out otherwise.

Where the top has no ``bin``, the environment is the only folder there with a Python in its own
(``zip -r venv.zip venv``); ``tony_executor/venv.py`` finds it on the node by the same rule.
"""

from __future__ import annotations

import os
import posixpath
from typing import Callable, List, NamedTuple, Optional, Set

from tony_core.bundle.members import Listing, top_folders

DEFAULT = "bin/python"
_PYTHONS = ("python", "python3")


class Verdict(NamedTuple):
    """What refuses the job, and what is only worth a line."""

    problems: List[str] = []
    doubts: List[str] = []


def inside(wanted: Optional[str]) -> Optional[str]:
    """Where the program's Python stands inside the venv; None when it is not in there."""
    if wanted is None:
        return DEFAULT
    if posixpath.isabs(wanted) or "/" not in wanted:
        return None
    path = posixpath.normpath(wanted)
    return path[len("venv/") :] if path.startswith("venv/") else path


def check_folder(path: str, wanted: Optional[str]) -> Verdict:
    """What is wrong with a venv that is a folder."""
    name = inside(wanted)
    if name is None:
        return Verdict()
    names = {entry for entry in os.listdir(path) if os.path.isdir(os.path.join(path, entry))}
    name = _place_of(name, names, lambda inner: os.path.lexists(os.path.join(path, inner)))
    full = os.path.join(path, name)
    if os.path.islink(full) and not os.path.exists(full):
        doubt = (
            f"{name} in it is a link to {os.path.realpath(full)}, which does not exist here; "
            "make the environment again, or name its Python with --python_binary_path"
        )
        return Verdict(doubts=[doubt])
    if os.path.isfile(full):
        if os.access(full, os.X_OK):
            return Verdict()
        return Verdict(doubts=[f"{name} in it cannot be executed"])
    return _missing(
        name,
        wanted is not None,
        names,
        lambda inner: os.path.exists(os.path.join(path, inner)),
    )


def check_archive(found: Listing, wanted: Optional[str]) -> Verdict:
    """What is wrong with a venv that is an archive."""
    name = inside(wanted)
    if name is None:
        return Verdict()
    tops = top_folders(found)
    name = _place_of(name, tops, lambda inner: inner in found.members)
    member = found.members.get(name)
    if member is None:
        return _missing(name, wanted is not None, tops, lambda inner: inner in found.members)
    if member.type == "file" and not member.executable:
        doubt = (
            f"{name} in it has no exec bit; make the archive with a tool that keeps it "
            "(tar, or zip -y)"
        )
        return Verdict(doubts=[doubt])
    return Verdict()


def _place_of(name: str, tops: Set[str], has: Callable[[str], bool]) -> str:
    """The name, or where it stands in the folder that holds the environment."""
    if has(name) or "bin" in tops:
        return name
    found = [top for top in tops if any(has(f"{top}/bin/{each}") for each in _PYTHONS)]
    return f"{found[0]}/{name}" if len(found) == 1 and has(f"{found[0]}/{name}") else name


def _missing(name: str, named: bool, tops: Set[str], has: Callable[[str], bool]) -> Verdict:
    """A Python that was named must be there; the default one need not be used at all."""
    for top in sorted(tops):
        inner = posixpath.join(top, name)
        if has(inner):
            # venv/ alone would mean the folder that the environment becomes at the task.
            give = f"venv/{inner}" if inner.startswith("venv/") else inner
            words = f"has no {name}, but it has {inner}: give --python_binary_path {give}"
            break
    else:
        words = f"has no {name}"
        if named:
            words += ", which --python_binary_path names"
        else:
            words += (
                ", so the program's Python will not be found there; "
                "name it with --python_binary_path"
            )
    return Verdict(problems=[words]) if named else Verdict(doubts=[words])
