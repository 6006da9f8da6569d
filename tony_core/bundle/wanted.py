"""What a job names: sources, under which name, for whom, and by which key.

Nothing is looked at here but the patterns of the class path. Names that TonY itself puts
into a task's folder are refused.
"""

from __future__ import annotations

import glob
import os
from typing import List, Protocol, Set, Tuple

from tony_core.bundle.runtime import NAME as RUNTIME_NAME
from tony_core.dataclass import dataclass
from tony_core.files.artifact import Use
from tony_core.files.location import base_name, is_remote, local_path, masked
from tony_core.job.problems import Severity
from tony_core.job.spec import FileRef, Job

SOURCE_NAME = "tony-src"
VENV_NAME = "venv"
HADOOP_NAME = ".tony-hadoop"  # never in a program's folder
HADOOP_CONF_PREFIX = ".tony-conf-"
MASTER = "am"
_RESERVED = (RUNTIME_NAME, SOURCE_NAME, VENV_NAME)


@dataclass(frozen=True)
class Want:
    """One thing that the job names."""

    source: str
    name: str
    use: Use
    key: str
    archive: bool = False  # unpacked into a folder of its name
    roles: Tuple[str, ...] = ()


class Say(Protocol):
    """Tell a problem."""

    def __call__(self, key: str, message: str, severity: Severity = Severity.ERROR) -> None:
        """``key`` is the one that the user wrote."""


def wants(job: Job, say: Say) -> List[Want]:
    """Everything the job names, in the order of its keys."""
    program = job.program
    found = []
    if program.src:
        found.append(Want(program.src, SOURCE_NAME, Use.SOURCE, "tony.client.src-dir"))
    if program.venv:
        found.append(Want(program.venv, VENV_NAME, Use.VENV, "tony.client.python-venv"))
    lists: List[Tuple[str, Tuple[FileRef, ...], Tuple[str, ...]]] = [
        ("tony.containers.resources", job.files, ()),
        ("tony.am.resources", job.master.files, (MASTER,)),
    ]
    lists += [(f"tony.{role.name}.resources", role.files, (role.name,)) for role in job.roles]
    for key, refs, roles in lists:
        for ref in refs:
            bad = bad_name(ref.name)
            if bad:
                say(key, f"{masked(ref.source)}: {bad}")
            else:
                found.append(Want(ref.source, ref.name, Use.RESOURCE, key, ref.archive, roles))
    found += _hadoop(job)
    return found + _classpath(job, {want.name for want in found}, say)


def _hadoop(job: Job) -> List[Want]:
    """The job's own Hadoop and configuration, by the names that executors look for."""
    hadoop = job.hadoop
    found = []
    if hadoop.location:
        key = "tony.application.hadoop.location"
        found.append(Want(hadoop.location, HADOOP_NAME, Use.RESOURCE, key, archive=True))
    for which, source in (
        ("hdfs", hadoop.hdfs_conf),
        ("yarn", hadoop.yarn_conf),
        ("mapred", hadoop.mapred_conf),
    ):
        if source:
            key = f"tony.application.{which}-conf-path"
            found.append(Want(source, f"{HADOOP_CONF_PREFIX}{which}", Use.RESOURCE, key))
    return found


def _classpath(job: Job, taken: Set[str], say: Say) -> List[Want]:
    """Each path that exists; ``*`` means what it means to a shell."""
    found: List[Want] = []
    key = "tony.client.hdfs-classpath"
    for word in job.program.hdfs_classpath:
        try:
            sources = [word] if is_remote(word) else _matches(local_path(word))
            names = {source: base_name(source) for source in sources}
        except ValueError as error:
            say(key, f"{masked(word)} is not a usable URL ({error})")
            continue
        if not sources:
            say(key, f"{word} does not exist and is left out", Severity.WARNING)
        for source in sources:
            if any(want.source == source for want in found):
                continue
            base = names[source]
            name, number = base, 1
            while name in taken or bad_name(name):
                number += 1
                name = f"{number}-{base}"
            taken.add(name)
            found.append(Want(source, name, Use.CLASSPATH, key))
    return found


def _matches(path: str) -> List[str]:
    return [path] if os.path.exists(path) else sorted(glob.glob(path))


def bad_name(name: str) -> str:
    """Why a resource cannot be called so; empty when it can."""
    if name in _RESERVED or name.startswith(("session-", ".tony-")):
        return f"the name {name} is taken by what TonY puts there; give another with ::name"
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        return f"{name!r} cannot be the name of a file; give one with ::name"
    return ""
