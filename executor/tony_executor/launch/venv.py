"""The job's virtual environment on this node, and its repair when its interpreter is not here.

A shipped venv's ``bin/python`` is often a link to the interpreter of the machine it was
made on. When this node lacks that path but has the same minor version, a private overlay
takes the venv's place: links to all that it holds, with ``bin/python`` pointing here. The
shared, localised venv is never written to.

An archive may hold the environment itself, or one folder with the environment in it
(``zip -r venv.zip venv``). In the latter case an overlay holds what both levels hold, so that
``venv/bin/python`` and ``venv/NAME/bin/python`` are the same interpreter.
"""

from __future__ import annotations

import os
import sys
from typing import List, NamedTuple, Optional

NAME = "venv"
OVERLAY = ".tony-venv"
_PYTHONS = ("python", "python3")


class Venv(NamedTuple):
    """Where it is, and a note for the job's story."""

    folder: str
    note: str = ""


class VenvError(Exception):
    """This node cannot run the venv's programs; the text says what to do."""


def find(work: str, overlay: str, path: str) -> Optional[Venv]:
    """The venv to use, repaired if it must be; None when the job has none."""
    folder = os.path.join(work, NAME)
    if not os.path.lexists(folder):
        return None
    top = os.path.realpath(folder)
    inner = _environment_of(top)
    if inner is None:
        return Venv(folder, "the venv has no folder bin: nothing of it is on the PATH")
    broken = _broken_link(os.path.join(inner, "bin"))
    if broken is None:
        if inner == top:
            return Venv(folder)
        _make_overlay(top, inner, overlay)
        return Venv(overlay, f"the virtual environment is the venv's folder {_name(inner)}")
    minor = _minor_version(inner)
    if minor is None:
        raise VenvError(
            f"the venv's bin/python leads to {broken}, which this node lacks, and its"
            " pyvenv.cfg does not say which version it needs: ship an archive that holds its"
            " own interpreter (conda-pack), or use tony.python-exec-path"
        )
    here = _interpreter(minor, path)
    if here is None:
        raise VenvError(
            f"the venv's bin/python leads to {broken}, which this node lacks, and no"
            f" python{minor} was found on it: install Python {minor} on the nodes, or ship an"
            " archive that holds its own interpreter (conda-pack)"
        )
    _make_overlay(top, inner, overlay, here)
    return Venv(overlay, f"the venv's {broken} is not on this node; {here} is used instead")


def _environment_of(top: str) -> Optional[str]:
    """The folder that holds ``bin``: this one, else the only one in it with a Python."""
    if os.path.isdir(os.path.join(top, "bin")):
        return top
    found = [
        os.path.join(top, entry)
        for entry in os.listdir(top)
        if any(os.path.lexists(os.path.join(top, entry, "bin", name)) for name in _PYTHONS)
    ]
    return found[0] if len(found) == 1 else None


def _broken_link(binaries: str) -> Optional[str]:
    """The missing file that bin/python links to; None where it is not broken."""
    for name in _PYTHONS:
        link = os.path.join(binaries, name)
        if os.path.islink(link) and not os.path.exists(link):
            # The message shows the end of the chain: python -> python3 -> /usr/bin/...
            seen = 0
            while os.path.islink(link) and seen < 10:
                link = os.path.join(os.path.dirname(link), os.readlink(link))
                seen += 1
            return link
    return None


def _minor_version(folder: str) -> Optional[str]:
    try:
        with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition("=")
                if key.strip() in ("version", "version_info"):
                    parts = value.strip().split(".")
                    if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit():
                        return f"{parts[0]}.{parts[1]}"
    except OSError:
        pass
    return None


def _interpreter(minor: str, path: str) -> Optional[str]:
    folders = [*path.split(os.pathsep), "/usr/local/bin", "/usr/bin", "/bin"]
    for folder in folders:
        candidate = os.path.join(folder, f"python{minor}")
        if folder.startswith("/") and os.access(candidate, os.X_OK):
            return candidate
    if minor == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    return None


def _make_overlay(top: str, inner: str, overlay: str, python: str = "") -> None:
    """Links to what the environment holds, and the archive's top; another ``python`` if given."""
    if os.path.isdir(overlay):
        return
    unfinished = overlay + ".unfinished"
    _remove(unfinished)
    os.makedirs(unfinished)
    own = ("bin", "pyvenv.cfg") if python else ()
    entries = dict.fromkeys(os.listdir(top), top)
    entries.update(dict.fromkeys(os.listdir(inner), inner))
    if inner != top:
        entries[os.path.basename(inner)] = top
    for entry, origin in entries.items():
        if entry not in own:
            os.symlink(os.path.join(origin, entry), os.path.join(unfinished, entry))
    if python:
        _replace_python(inner, unfinished, python)
    os.rename(unfinished, overlay)


def _replace_python(inner: str, unfinished: str, python: str) -> None:
    os.mkdir(os.path.join(unfinished, "bin"))
    for entry in os.listdir(os.path.join(inner, "bin")):
        if not _is_python(entry):
            origin = os.path.join(inner, "bin", entry)
            os.symlink(origin, os.path.join(unfinished, "bin", entry))
    os.symlink(python, os.path.join(unfinished, "bin", "python"))
    for entry in ("python3", os.path.basename(python)):
        if not os.path.lexists(os.path.join(unfinished, "bin", entry)):
            os.symlink("python", os.path.join(unfinished, "bin", entry))
    lines: List[str] = []
    with open(os.path.join(inner, "pyvenv.cfg"), encoding="utf-8") as file:
        for line in file:
            key = line.partition("=")[0].strip()
            if key == "home":
                line = f"home = {os.path.dirname(os.path.realpath(python))}\n"
            elif key in ("executable", "base-executable"):
                line = f"{key} = {os.path.realpath(python)}\n"
            lines.append(line)
    with open(os.path.join(unfinished, "pyvenv.cfg"), "w", encoding="utf-8") as file:
        file.writelines(lines)


def _name(inner: str) -> str:
    """The folder's own name, as it may stand in a message."""
    return os.path.basename(inner)[:80].encode("ascii", "backslashreplace").decode()


def _remove(folder: str) -> None:
    """An overlay that was not finished: two levels of links and files."""
    for here, folders, files in os.walk(folder, topdown=False):
        for name in files + folders:
            path = os.path.join(here, name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
            else:
                os.rmdir(path)
    if os.path.isdir(folder):
        os.rmdir(folder)


def _is_python(name: str) -> bool:
    """``python``, ``python3``, ``python3.11``."""
    version = name[len("python") :].split(".")
    return name == "python" or (
        name.startswith("python") and len(version) <= 2 and all(map(str.isdigit, version))
    )
