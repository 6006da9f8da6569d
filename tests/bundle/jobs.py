"""Small jobs to bundle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List, Tuple

from tony_core.bundle.client.planning import Plan
from tony_core.job.problems import Severity
from tony_core.job.spec import FileRef, Job, MasterSpec, Program, Resources, Role, Runtime

PYTHON = Runtime(python=sys.executable)


def job(
    src: Path | str | None = None,
    venv: Path | str | None = None,
    python: str | None = None,
    files: Tuple[FileRef, ...] = (),
    am: Tuple[FileRef, ...] = (),
    classpath: Tuple[str, ...] = (),
    **roles: Tuple[FileRef, ...],
) -> Job:
    """A job of role ``worker`` (or of those given, with their files)."""
    return Job(
        name="test",
        roles=tuple(
            Role(name, 1, Resources(), "true", files=refs)
            for name, refs in (roles or {"worker": ()}).items()
        ),
        program=Program(
            src=str(src) if src else None,
            venv=str(venv) if venv else None,
            python=python,
            hdfs_classpath=classpath,
        ),
        files=files,
        master=MasterSpec(files=am),
        runtime=PYTHON,
    )


def ref(source: Path | str, name: str = "", archive: bool = False) -> FileRef:
    """A resource, by default under its own name."""
    return FileRef(str(source), name or Path(source).name, archive)


def messages_of(plan: Plan, severity: Severity = Severity.ERROR) -> List[str]:
    """The plan's problems of one severity, as a person reads them."""
    return [str(problem) for problem in plan.problems if problem.severity is severity]


def snapshot(folder: Path) -> List[Tuple[str, int, int, bytes]]:
    """All that a person could see changed in a folder."""
    found = []
    for path in sorted([folder, *folder.rglob("*")]):
        info = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found.append((str(path), info.st_mode, info.st_mtime_ns, data))
    return found
