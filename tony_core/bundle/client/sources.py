"""The sources that a job names: under which name, for which roles, and by which key.

Only the patterns of the class path are matched against the disk. Names that TonY itself puts into
a task's folder are refused. Of a command only those files are named that it certainly needs.
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
import shlex
from typing import List, NamedTuple, Optional, Protocol, Set, Tuple

from tony_core.bundle.client.runtime import NAME as RUNTIME_NAME
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


class Source(NamedTuple):
    location: str  # a path or URL
    name: str
    use: Use
    key: str
    archive: bool = False  # unpacked into a folder of its name
    roles: Tuple[str, ...] = ()


class Report(Protocol):
    def __call__(self, key: str, message: str, severity: Severity = Severity.ERROR) -> None:
        """``key`` is the one that the user wrote."""


def list_sources(job: Job, report: Report) -> List[Source]:
    """Everything that the job names, in the order of its keys."""
    program = job.program
    found = []
    if program.src:
        found.append(Source(program.src, SOURCE_NAME, Use.SOURCE, "tony.client.src-dir"))
    if program.venv:
        found.append(Source(program.venv, VENV_NAME, Use.VENV, "tony.client.python-venv"))
    lists: List[Tuple[str, Tuple[FileRef, ...], Tuple[str, ...]]] = [
        ("tony.containers.resources", job.files, ()),
        ("tony.am.resources", job.master.files, (MASTER,)),
    ]
    lists += [(f"tony.{role.name}.resources", role.files, (role.name,)) for role in job.roles]
    for key, refs, roles in lists:
        for ref in refs:
            refused = why_bad_name(ref.name)
            if refused:
                report(key, f"{masked(ref.source)}: {refused}")
            else:
                found.append(Source(ref.source, ref.name, Use.RESOURCE, key, ref.archive, roles))
    found += _hadoop(job)
    return found + _classpath(job, {source.name for source in found}, report)


def _hadoop(job: Job) -> List[Source]:
    """The job's own Hadoop and configuration, by the names that executors look for."""
    hadoop = job.hadoop
    found = []
    if hadoop.location:
        key = "tony.application.hadoop.location"
        found.append(Source(hadoop.location, HADOOP_NAME, Use.RESOURCE, key, archive=True))
    for which, location in (
        ("hdfs", hadoop.hdfs_conf),
        ("yarn", hadoop.yarn_conf),
        ("mapred", hadoop.mapred_conf),
    ):
        if location:
            key = f"tony.application.{which}-conf-path"
            found.append(Source(location, f"{HADOOP_CONF_PREFIX}{which}", Use.RESOURCE, key))
    return found


def _classpath(job: Job, taken: Set[str], report: Report) -> List[Source]:
    """Each path that exists; ``*`` means what it means to a shell."""
    found: List[Source] = []
    key = "tony.client.hdfs-classpath"
    for word in job.program.hdfs_classpath:
        try:
            locations = [word] if is_remote(word) else _matches(local_path(word))
            names = {location: base_name(location) for location in locations}
        except ValueError as error:
            report(key, f"{masked(word)} is not a usable URL ({error})")
            continue
        if not locations:
            report(key, f"{word} does not exist and is left out", Severity.WARNING)
        for location in locations:
            if any(each.location == location for each in found):
                continue
            base = names[location]
            name, number = base, 1
            while name in taken or why_bad_name(name):
                number += 1
                name = f"{number}-{base}"
            taken.add(name)
            found.append(Source(location, name, Use.CLASSPATH, key))
    return found


def _matches(path: str) -> List[str]:
    return [path] if os.path.exists(path) else sorted(glob.glob(path))


def why_bad_name(name: str) -> str:
    """Why a resource cannot have that name; empty when it can."""
    if name in _RESERVED or name.startswith(("session-", ".tony-")):
        return f"the name {name} is reserved by TonY; give another with ::name"
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        return f"{name!r} cannot be the name of a file; give one with ::name"
    return ""


_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
_SHELL = ("sh", "bash", "dash", "zsh", "ksh")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_EXPANDED = re.compile(r"[$`*?\[{~\\\n]")
_WITH_VALUE = ("-W", "-X")  # options of Python that a word of their own follows


def list_program_files(command: str) -> List[str]:
    """The files of its working folder without which a command cannot begin.

    Its first program, if that is a relative path, and the script that a Python or a shell gets.
    A text that decides for itself (``cd``, ``if``, ``||``) names none, nor does a word that a
    shell expands.
    """
    words = _first_command(command)
    while words and (_ASSIGNMENT.match(words[0]) or words[0] == "exec"):
        del words[0]
    if not words:
        return []
    program, *rest = words
    found = [program] if "/" in program else []
    name = posixpath.basename(program)
    if _PYTHON.match(name):
        found += _script(rest)
    elif name in _SHELL and rest and not rest[0].startswith(("-", "+")):
        found.append(rest[0])
    paths = [posixpath.normpath(path) for path in found if not _EXPANDED.search(path)]
    return [path for path in paths if not path.startswith(("/", "..")) and path != "."]


def _first_command(command: str) -> List[str]:
    """The words of the first of a text's commands; none where another may stand in for it."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: List[str] = []
    try:
        for word in lexer:
            if set(word) <= set("();<>|&"):
                return [] if word == "||" else words
            words.append(word)
    except ValueError:  # an unclosed quote: the shell reports it
        return []
    return words


def _script(words: List[str]) -> List[str]:
    """The script among a Python's arguments, if there is one."""
    after: Optional[str] = None
    for word in words:
        if after in _WITH_VALUE:
            after = None
        elif not word.startswith("-"):
            return [word]
        elif word == "-" or word.startswith("--") or set("mc") & set(word.partition("=")[0]):
            return []
        else:
            after = word
    return []
