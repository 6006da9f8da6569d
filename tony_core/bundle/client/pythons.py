"""Pythons: the interpreter that nodes run, and the one in a job's virtual environment.

``tony.runtime.python`` names an interpreter of the nodes. Where it exists on this machine it is
asked for its version, and the answer is remembered by the file's stamp, so that the runtime
carries bytecode for it. Elsewhere the runtime works too: it compiles what it imports.

A virtual environment is checked on the client. A Python that the job names and the environment
lacks refuses the job; a doubt is a warning: the node may be laid out otherwise. Where the top has
no ``bin``, the environment is the only folder there with a Python in its own
(``zip -r venv.zip venv``); ``tony_executor/launch/working_folder.py`` finds it by the same rule.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import shutil
import subprocess
import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from tony_core.bundle.archive_members import Listing, top_folders
from tony_core.bundle.digests import Stamp
from tony_core.files.durable import replace_file

DEFAULT = "bin/python"
_PYTHONS = ("python", "python3")
_PROBE = "import sys; print(*sys.version_info[:2], sys.implementation.cache_tag)"


class Python(NamedTuple):
    path: str
    version: Tuple[int, int]
    tag: str

    @classmethod
    def running(cls) -> Python:
        tag = sys.implementation.cache_tag or ""
        return cls(sys.executable, (sys.version_info[0], sys.version_info[1]), tag)


class PythonCache:
    """The versions of interpreters, by the stamp of their files."""

    def __init__(self, folder: Optional[str]) -> None:
        self._folder = folder
        self._new: Dict[str, Python] = {}

    def inspect(self, name: str) -> Optional[Python]:
        """The interpreter of that name on this machine; None when it does not run here."""
        path = shutil.which(os.path.expanduser(name))
        if path is None:
            return None
        if os.path.realpath(path) == os.path.realpath(sys.executable):
            return Python.running()
        found = os.stat(path)
        key = hashlib.sha256(
            repr((os.path.abspath(path), os.path.realpath(path), Stamp.of(found))).encode()
        ).hexdigest()[:32]
        known = self._read(key, path)
        if known is None:
            known = _run(path)
            if known is not None:
                self._new[key] = known
        return known

    def _read(self, key: str, path: str) -> Optional[Python]:
        if self._folder is None:
            return None
        try:
            with open(os.path.join(self._folder, f"python-{key}.json"), encoding="ascii") as stream:
                major, minor, tag = json.load(stream)
            return Python(path, (int(major), int(minor)), str(tag))
        except (OSError, ValueError, TypeError):
            return None

    def save(self) -> None:
        """Write the answers that are new."""
        if self._folder is None:
            return
        for key, python in self._new.items():
            path = os.path.join(self._folder, f"python-{key}.json")
            replace_file(path, json.dumps([*python.version, python.tag]).encode(), sync=False)
        self._new.clear()


def _run(path: str) -> Optional[Python]:
    try:
        words = subprocess.run(
            [path, "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=True,
            text=True,
        ).stdout.split()
        return Python(path, (int(words[0]), int(words[1])), words[2])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


# ------------------------------------------------------------------ virtual environments


class VenvCheck(NamedTuple):
    """Errors, which refuse the job, and warnings."""

    problems: List[str] = []
    warnings: List[str] = []


def path_in_venv(python: Optional[str]) -> Optional[str]:
    """The path of the program's Python inside the environment; None when it is elsewhere."""
    if python is None:
        return DEFAULT
    if posixpath.isabs(python) or "/" not in python:
        return None
    path = posixpath.normpath(python)
    return path[len("venv/") :] if path.startswith("venv/") else path


def check_venv_folder(path: str, python: Optional[str]) -> VenvCheck:
    name = path_in_venv(python)
    if name is None:
        return VenvCheck()
    names = {entry for entry in os.listdir(path) if os.path.isdir(os.path.join(path, entry))}
    name = _find_python(name, names, lambda inner: os.path.lexists(os.path.join(path, inner)))
    full = os.path.join(path, name)
    if os.path.islink(full) and not os.path.exists(full):
        warning = (
            f"{name} in it is a link to {os.path.realpath(full)}, which does not exist here; "
            "make the environment again, or name its Python with --python_binary_path"
        )
        return VenvCheck(warnings=[warning])
    if os.path.isfile(full):
        if os.access(full, os.X_OK):
            return VenvCheck()
        return VenvCheck(warnings=[f"{name} in it cannot be executed"])
    return _missing_python(
        name, python is not None, names, lambda inner: os.path.exists(os.path.join(path, inner))
    )


def check_venv_archive(found: Listing, python: Optional[str]) -> VenvCheck:
    name = path_in_venv(python)
    if name is None:
        return VenvCheck()
    tops = top_folders(found)
    name = _find_python(name, tops, lambda inner: inner in found.members)
    member = found.members.get(name)
    if member is None:
        return _missing_python(name, python is not None, tops, lambda inner: inner in found.members)
    if member.type == "file" and not member.executable:
        warning = (
            f"{name} in it has no exec bit; make the archive with a tool that keeps it "
            "(tar, or zip -y)"
        )
        return VenvCheck(warnings=[warning])
    return VenvCheck()


def _find_python(name: str, tops: Set[str], has: Callable[[str], bool]) -> str:
    """The path, or the same path in the folder that holds the environment."""
    if has(name) or "bin" in tops:
        return name
    found = [top for top in tops if any(has(f"{top}/bin/{each}") for each in _PYTHONS)]
    return f"{found[0]}/{name}" if len(found) == 1 and has(f"{found[0]}/{name}") else name


def _missing_python(
    name: str, named: bool, tops: Set[str], has: Callable[[str], bool]
) -> VenvCheck:
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
    return VenvCheck(problems=[words]) if named else VenvCheck(warnings=[words])
