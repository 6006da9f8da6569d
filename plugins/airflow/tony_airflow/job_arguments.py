"""Turns an operator's arguments into those of ``tony submit``. Pure.

It reports all problems at once, each with its argument and with what may be meant. The checks that
follow (:meth:`TonyHook.check`) find what only the job file, the cluster or the file system shows.
"""

from __future__ import annotations

import ast
import functools
import json
import os.path
import shlex
from datetime import timedelta
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tony_airflow.parsing import seconds_of
from tony_core.job.keys.table import RESERVED_ROLES, ROLE_NAME, WELL_KNOWN_ROLES, table
from tony_core.job.load import JobArguments, text_of
from tony_core.job.mask import secrets_in
from tony_core.job.problems import Problem, did_you_mean
from tony_core.job.settings import is_url
from tony_core.job.units import ENV_NAME

TAGS = "tony.application.tags"
LEASE = "tony.client.lease"
SHORTEST_SECRET = 4  # masking a shorter one would black out half a log

#: Arguments that are texts, and the key of each.
_TEXT_KEYS = {
    "job_name": "tony.application.name",
    "framework": "tony.application.framework",
    "yarn_queue": "tony.yarn.queue",
    "node_label": "tony.application.node-label",
    "checkpoint_dir": "tony.application.checkpoint-dir",
}
#: Arguments with the name of an option of ``tony submit``.
_COMMANDS = ("executes", "task_params")
_PATHS = ("src_dir", "python_venv", "conf_file")
_TEXTS = (*_PATHS, "python_binary_path", "hdfs_classpath")
_SHELL_WORDS = frozenset(
    "if then elif else fi do done case esac while until for in function time select coproc".split()
)
_ROLE_KEY = "tony.<role>."


def read_arguments(
    given: Mapping[str, Any],
    *,
    lease_s: Optional[float] = None,
    folder: Optional[str] = None,
) -> Tuple[JobArguments, List[Problem]]:
    """The arguments for the client without those that are wrong, and the problems.

    ``given`` are the operator's, rendered, by the names in ``JOB_ARGUMENTS``; ``folder`` is the
    folder of the DAG's file, for relative paths. A lease in the job's own ``conf`` takes precedence
    over ``lease_s``.
    """
    reader = _Reader(given)
    options: Dict[str, Any] = {name: reader.command(name) for name in _COMMANDS}
    options.update({name: reader.text(name) for name in _TEXTS})
    for name in _PATHS:
        options[name] = _from(folder, options[name]) if options[name] else None
    texts = {key: reader.text(name) for name, key in _TEXT_KEYS.items()}
    extra = {key: text for key, text in texts.items() if text is not None}
    extra.update(reader.roles(given.get("roles")))
    conf = reader.conf(given.get("conf"))
    extra.update(_docker(reader.text("docker_image")))
    timeout = reader.duration(given.get("timeout"))
    if timeout is not None:
        extra["tony.application.timeout"] = timeout
    tags = reader.listed("tags")
    if tags:
        extra[TAGS] = ",".join(tags)
    files = reader.listed("files")
    pairs = [f"{key}={text}" for key, text in conf]
    if files:  # on --conf's layer they are added to the job file's
        pairs.append("tony.containers.resources=" + ",".join(_file_from(folder, f) for f in files))
    if lease_s is not None and LEASE not in dict(conf):
        extra[LEASE] = f"{lease_s:g}s"
    arguments = JobArguments(
        **options,
        sidecar_tensorboard_log_dir=reader.text("tensorboard_log_dir"),
        conf=tuple(pairs),
        shell_env=reader.env("env"),
        container_env=reader.env("container_env"),
        extra=extra,
    )
    return arguments, reader.problems


def secrets_of(arguments: JobArguments) -> List[str]:
    """The values of keys and variables whose names say that they are secret."""
    pairs: List[Tuple[str, str]] = list(arguments.extra.items())
    for given in (arguments.conf, arguments.shell_env, arguments.container_env):
        if isinstance(given, Mapping):
            pairs.extend(given.items())
        else:
            pairs.extend((pair.partition("=")[0], pair.partition("=")[2]) for pair in given)
    found = (hidden for key, text in pairs for hidden in secrets_in(key, text))
    return [text for text in found if len(text) >= SHORTEST_SECRET]


@functools.cache
def role_keys() -> Tuple[str, ...]:
    """The names in a role's mapping: the keys ``tony.<role>.*`` without their beginning."""
    found = [key.name[len(_ROLE_KEY) :] for key in table().keys if key.name.startswith(_ROLE_KEY)]
    return (*(name for name in found if "<" not in name), "resource", "docker-image")


class _Reader:
    """Reads arguments, and collects the problems."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self.problems: List[Problem] = []

    def text(self, name: str) -> Optional[str]:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, (list, tuple)) and name == "hdfs_classpath":
            return ",".join(self.listed(name))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name == "job_name":
            value = str(value)
        if not isinstance(value, str):
            self._wrong(name, f"expected a text, not {_kind(value)}")
            return None
        return value if value.strip() else None

    def command(self, name: str) -> Optional[str]:
        """A text for a shell; or arguments, quoted so that a shell passes them on unchanged."""
        value = self._given.get(name)
        if not isinstance(value, (list, tuple)):
            return self.text(name)
        found: List[str] = []
        for index, argument in enumerate(value):
            if isinstance(argument, (str, int, float, os.PathLike)) and argument is not True:
                found.append(str(argument))
            else:
                self._wrong(f"{name}[{index}]", f"expected a text, not {_kind(argument)}")
        if name == "executes" and not (found and found[0].strip()):
            self._wrong(name, "the list has no program: its first item is the command to run")
            return None
        return quoted(found, program=name == "executes") or None

    def roles(self, roles: Any) -> Dict[str, str]:
        """``{"worker": {"instances": 2}}`` as keys; ``{"worker": 2}`` is short for it."""
        keys: Dict[str, str] = {}
        for role, given in self._mapping(roles, "roles", '{"worker": {"instances": 2}}'):
            where = f"roles[{role!r}]"
            if not isinstance(role, str) or ROLE_NAME.fullmatch(role) is None:
                known = did_you_mean(str(role).lower(), WELL_KNOWN_ROLES)
                self._wrong(where, f"expected lower-case letters, digits and - in the name{known}")
                continue
            if role in RESERVED_ROLES:
                self._wrong(where, "the name is reserved: other keys begin with it (see conf)")
                continue
            if isinstance(given, int) and not isinstance(given, bool):
                given = {"instances": given}
            example = '{"instances": 2, "memory": "2g"}'
            for key, value in self._mapping(given, where, example):
                keys.update(self._role_key(role, f"{where}[{key!r}]", str(key), value))
        return keys

    def _role_key(self, role: str, where: str, key: str, value: Any) -> Dict[str, str]:
        name = key.replace("_", "-")
        if name not in role_keys():
            near = did_you_mean(name, role_keys()).replace("-", "_")
            known = near or f" (there are: {', '.join(k.replace('-', '_') for k in role_keys())})"
            self._wrong(where, f"unknown key of a role{known}")
            return {}
        if value is None:
            return {}
        if name == "docker-image":
            return {"tony.docker.enabled": "true", f"tony.docker.{role}.image": str(value)}
        if name == "resource":
            pairs = self._mapping(value, where, '{"yarn.io/fpga": 1}')
            return {f"tony.{role}.resource.{kind}": text_of(count) for kind, count in pairs}
        if not isinstance(value, (str, int, float, list, tuple, os.PathLike)):
            self._wrong(where, f"cannot be {_kind(value)}")
            return {}
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        return {f"tony.{role}.{name}": text_of(value)}

    def conf(self, conf: Any) -> List[Tuple[str, str]]:
        """A mapping of keys, or ``key=value`` as on the command line."""
        conf = _literal(conf, "[")
        if isinstance(conf, (list, tuple)):
            pairs = []
            for index, pair in enumerate(conf):
                key, equals, text = str(pair).partition("=")
                if not isinstance(pair, str) or not equals or not key.strip():
                    self._wrong(f"conf[{index}]", "expected key=value")
                else:
                    pairs.append((key.strip(), text))
            return pairs
        pairs = []
        for key, value in self._mapping(conf, "conf", '{"tony.am.retry-count": 0}'):
            where = f"conf[{key!r}]"
            if not isinstance(key, str) or not key.strip() or "=" in key:
                self._wrong(where, "expected a key, a text without =")
            elif value is None:
                self._wrong(where, "has no value: leave it out, or write an empty text")
            elif isinstance(value, timedelta):
                pairs.append((key, f"{value.total_seconds():g}s"))
            else:
                pairs.append((key, text_of(value)))
        return pairs

    def env(self, where: str) -> Dict[str, str]:
        """Variables. No message quotes a value: it may be a secret."""
        found: Dict[str, str] = {}
        for name, value in self._mapping(self._given.get(where), where, '{"NAME": "value"}'):
            if not isinstance(name, str) or ENV_NAME.fullmatch(name) is None:
                self._wrong(where, f"{name!r} is not the name of a variable")
            elif isinstance(value, bool) or value is None:
                advice = '"1", or leave it out' if value is None else '"true" or "1"'
                self._wrong(f"{where}[{name!r}]", f"expected a text: write {advice}")
            elif isinstance(value, (str, int, float, os.PathLike)):
                found[name] = str(os.fspath(value) if isinstance(value, os.PathLike) else value)
            else:
                self._wrong(f"{where}[{name!r}]", f"expected a text, not {_kind(value)}")
        return found

    def listed(self, where: str) -> List[str]:
        """A list of texts, or one text with commas."""
        value = self._given.get(where)
        if value is None:
            return []
        value = _literal(value, "[")
        if isinstance(value, str):
            return [item.strip() for item in value.split(",") if item.strip()]
        if not isinstance(value, (list, tuple, set, frozenset)):
            self._wrong(where, f"expected a list of texts, not {_kind(value)}")
            return []
        found = []
        for item in sorted(value) if isinstance(value, (set, frozenset)) else value:
            if isinstance(item, (str, os.PathLike)) and "," not in os.fspath(item):
                found.append(os.fspath(item))
            else:
                self._wrong(where, f"{item!r} is not a text without a comma")
        return found

    def duration(self, value: Any) -> Optional[str]:
        """A timedelta or seconds; a text as in a job file."""
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if isinstance(value, str):
            return f"{value}s" if value.strip().isdecimal() else value
        try:
            return f"{seconds_of(value):g}s"
        except ValueError:
            self._wrong("timeout", f'{value!r} is not a duration: write "2h", or a timedelta')
            return None

    def _mapping(self, value: Any, where: str, example: str) -> Sequence[Tuple[Any, Any]]:
        if value is None or (isinstance(value, str) and not value.strip()):
            return ()
        value = _literal(value, "{")
        if not isinstance(value, Mapping):
            self._wrong(where, f"expected a mapping like {example}, not {_kind(value)}")
            return ()
        return tuple(value.items())

    def _wrong(self, where: str, message: str) -> None:
        self.problems.append(Problem(message, file=where))


def quoted(arguments: Sequence[str], program: bool = True) -> str:
    """Arguments as a text that a shell splits into exactly these again.

    With ``program`` the first is a command, which the shell must not take for an assignment or a
    word of its own. ``${`` is quoted so that it is no reference to another key of the job file.
    """
    found = [shlex.quote(argument) for argument in arguments]
    if program and found and ("=" in found[0] or found[0] in _SHELL_WORDS):
        found[0] = found[0] if found[0].startswith("'") else f"'{found[0]}'"
    return " ".join(found).replace("${", "$''{")


def _literal(value: Any, bracket: str) -> Any:
    """The list or mapping that a template rendered as a whole, in JSON or as Python writes it.

    Any other value is returned as it is.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(bracket):
        return value
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return value


def _docker(image: Optional[str]) -> Dict[str, str]:
    if image is None:
        return {}
    return {"tony.docker.enabled": "true", "tony.docker.containers.image": image}


def _from(folder: Optional[str], path: str) -> str:
    """A relative path, from the folder of the DAG's file; others as they are."""
    if folder is None or is_url(path) or os.path.isabs(path) or is_job_file_text(path):
        return path
    return os.path.normpath(os.path.join(folder, path))


def _file_from(folder: Optional[str], file: str) -> str:
    """The same of ``source[::name][#archive]``."""
    source, name, rest = file.partition("::")
    return _from(folder, source) + name + rest


def is_job_file_text(conf_file: str) -> bool:
    """Whether the argument is a job file's text instead of its path."""
    return conf_file.lstrip().startswith("<")


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
