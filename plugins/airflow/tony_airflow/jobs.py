"""From an operator's arguments to what ``tony submit`` would be told. Pure.

Everything that can be seen to be wrong here is said at once, each with the argument it stands
in and what may have been meant. What only the job file, the cluster or the file system can tell
is said by the checks that follow (:meth:`TonyHook.check`), which know nothing of Airflow.
"""

from __future__ import annotations

import ast
import functools
import json
import os.path
import shlex
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tony_airflow.durations import seconds_of
from tony_core.job.keys import RESERVED_ROLES, ROLE_NAME, WELL_KNOWN_ROLES, table
from tony_core.job.load import JobArguments, text_of
from tony_core.job.mask import secrets_in
from tony_core.job.problems import JobError, Problem, did_you_mean
from tony_core.job.settings import is_url
from tony_core.job.units import ENV_NAME

TAGS = "tony.application.tags"
LEASE = "tony.client.lease"
SHORTEST_SECRET = 4  # what is shorter would blacken half a log

#: Arguments that are one key of the job each, and may be a text.
_TEXT_KEYS = {
    "job_name": "tony.application.name",
    "framework": "tony.application.framework",
    "yarn_queue": "tony.yarn.queue",
    "node_label": "tony.application.node-label",
    "checkpoint_dir": "tony.application.checkpoint-dir",
}
#: Arguments that the command line knows by the same names.
_WORDS = (
    "executes",
    "task_params",
    "src_dir",
    "python_venv",
    "python_binary_path",
    "conf_file",
    "hdfs_classpath",
    "tensorboard_log_dir",
)
_COMMANDS = ("executes", "task_params")
_PATHS = ("src_dir", "python_venv", "conf_file")
_SHELL_WORDS = frozenset(
    "if then elif else fi do done case esac while until for in function time select coproc".split()
)
_ROLE_KEY = "tony.<role>."


@dataclass(frozen=True)
class JobWords:
    """What an operator was told of its job, templates rendered; anything may be wrong with it."""

    executes: Any = None
    task_params: Any = None
    src_dir: Any = None
    python_venv: Any = None
    python_binary_path: Any = None
    conf_file: Any = None
    conf: Any = None
    roles: Any = None
    env: Any = None
    container_env: Any = None
    files: Any = None
    framework: Any = None
    job_name: Any = None
    yarn_queue: Any = None
    node_label: Any = None
    tags: Any = None
    docker_image: Any = None
    hdfs_classpath: Any = None
    tensorboard_log_dir: Any = None
    checkpoint_dir: Any = None
    timeout: Any = None


def job_arguments(words: JobWords, **more: Any) -> JobArguments:
    """The same for the client; JobError with everything that is wrong."""
    arguments, wrong = read_arguments(words, **more)
    if wrong:
        raise JobError(wrong)
    return arguments


def read_arguments(
    words: JobWords,
    *,
    lease_s: Optional[float] = None,
    folder: Optional[str] = None,
) -> Tuple[JobArguments, List[Problem]]:
    """The same for the client, without what is wrong; and that, for other checks to add to.

    ``folder`` is what relative paths stand in: the folder of the DAG's file. A lease that the
    job's own ``conf`` sets wins over ``lease_s``.
    """
    reader = _Reader()
    extra: Dict[str, str] = {}
    said: Dict[str, Optional[str]] = {
        name: reader.command(words, name) if name in _COMMANDS else reader.text(words, name)
        for name in _WORDS
    }
    for name, key in _TEXT_KEYS.items():
        text = reader.text(words, name)
        if text is not None:
            extra[key] = text
    extra.update(reader.roles(words.roles))
    conf = reader.conf(words.conf)
    extra.update(_docker(reader.text(words, "docker_image")))
    timeout = reader.duration(words.timeout)
    if timeout is not None:
        extra["tony.application.timeout"] = timeout
    tags = reader.listed(words.tags, "tags")
    if tags:
        extra[TAGS] = ",".join(tags)
    files = reader.listed(words.files, "files")
    pairs = [f"{key}={text}" for key, text in conf]
    if files:  # on --conf's layer it is added to what the job file names
        pairs.append("tony.containers.resources=" + ",".join(_file_from(folder, f) for f in files))
    if lease_s is not None and LEASE not in dict(conf):
        extra[LEASE] = f"{lease_s:g}s"
    env = reader.env(words.env, "env")
    container_env = reader.env(words.container_env, "container_env")
    for name in _PATHS:
        path = said[name]
        said[name] = _from(folder, path) if path else None
    arguments = JobArguments(
        executes=said["executes"],
        task_params=said["task_params"],
        src_dir=said["src_dir"],
        python_venv=said["python_venv"],
        python_binary_path=said["python_binary_path"],
        conf_file=said["conf_file"],
        conf=tuple(pairs),
        shell_env=env,
        container_env=container_env,
        hdfs_classpath=said["hdfs_classpath"],
        sidecar_tensorboard_log_dir=said["tensorboard_log_dir"],
        extra=extra,
    )
    return arguments, reader.problems


def secrets_of(arguments: JobArguments) -> List[str]:
    """Values that no log may show: those of keys and variables that are secret by their names."""
    pairs: List[Tuple[str, str]] = list(arguments.extra.items())
    for words in (arguments.conf, arguments.shell_env, arguments.container_env):
        if isinstance(words, Mapping):
            pairs.extend(words.items())
        else:
            pairs.extend((word.partition("=")[0], word.partition("=")[2]) for word in words)
    found = (hidden for key, text in pairs for hidden in secrets_in(key, text))
    return [text for text in found if len(text) >= SHORTEST_SECRET]


@functools.cache
def role_words() -> Tuple[str, ...]:
    """What may be said of a role: the keys ``tony.<role>.*`` without their beginning."""
    found = [key.name[len(_ROLE_KEY) :] for key in table().keys if key.name.startswith(_ROLE_KEY)]
    return (*(word for word in found if "<" not in word), "resource", "docker-image")


class _Reader:
    """Reads arguments, and keeps what is wrong with them."""

    def __init__(self) -> None:
        self.problems: List[Problem] = []

    def text(self, words: JobWords, name: str) -> Optional[str]:
        value = getattr(words, name)
        if value is None:
            return None
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, (list, tuple)) and name == "hdfs_classpath":
            return ",".join(self.listed(value, name))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name == "job_name":
            value = str(value)
        if not isinstance(value, str):
            self._wrong(name, f"has to be a text, and is {_kind(value)}")
            return None
        return value if value.strip() else None

    def command(self, words: JobWords, name: str) -> Optional[str]:
        """A text for a shell; or arguments, quoted so that a shell passes them on unchanged."""
        value = getattr(words, name)
        if not isinstance(value, (list, tuple)):
            return self.text(words, name)
        found: List[str] = []
        for index, argument in enumerate(value):
            if isinstance(argument, (str, int, float, os.PathLike)) and argument is not True:
                found.append(str(argument))
            else:
                self._wrong(f"{name}[{index}]", f"has to be a text, and is {_kind(argument)}")
        if name == "executes" and not (found and found[0].strip()):
            self._wrong(name, "is a list without a program: its first item is what is run")
            return None
        return quoted(found, program=name == "executes") or None

    def roles(self, roles: Any) -> Dict[str, str]:
        """``{"worker": {"instances": 2}}`` as keys; ``{"worker": 2}`` is short for it."""
        keys: Dict[str, str] = {}
        for role, said in self._mapping(roles, "roles", '{"worker": {"instances": 2}}'):
            where = f"roles[{role!r}]"
            if not isinstance(role, str) or ROLE_NAME.fullmatch(role) is None:
                known = did_you_mean(str(role).lower(), WELL_KNOWN_ROLES)
                self._wrong(where, f"a role is named by small letters, digits and -{known}")
                continue
            if role in RESERVED_ROLES:
                self._wrong(where, "the name is taken: keys of its own begin so (see conf)")
                continue
            if isinstance(said, int) and not isinstance(said, bool):
                said = {"instances": said}
            example = '{"instances": 2, "memory": "2g"}'
            for word, value in self._mapping(said, where, example):
                keys.update(self._role_word(role, f"{where}[{word!r}]", str(word), value))
        return keys

    def _role_word(self, role: str, where: str, word: str, value: Any) -> Dict[str, str]:
        name = word.replace("_", "-")
        if name not in role_words():
            near = did_you_mean(name, role_words()).replace("-", "_")
            known = near or f" (there is: {', '.join(w.replace('-', '_') for w in role_words())})"
            self._wrong(where, f"nothing that can be said of a role{known}")
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
            for index, word in enumerate(conf):
                key, equals, text = str(word).partition("=")
                if not isinstance(word, str) or not equals or not key.strip():
                    self._wrong(f"conf[{index}]", "is not key=value")
                else:
                    pairs.append((key.strip(), text))
            return pairs
        pairs = []
        for key, value in self._mapping(conf, "conf", '{"tony.am.retry-count": 0}'):
            where = f"conf[{key!r}]"
            if not isinstance(key, str) or not key.strip() or "=" in key:
                self._wrong(where, "is no key")
            elif value is None:
                self._wrong(where, "has no value: leave it out, or write an empty text")
            elif isinstance(value, timedelta):
                pairs.append((key, f"{value.total_seconds():g}s"))
            else:
                pairs.append((key, text_of(value)))
        return pairs

    def env(self, env: Any, where: str) -> Dict[str, str]:
        """Variables. What they hold is quoted in no message: it may be a secret."""
        found: Dict[str, str] = {}
        for name, value in self._mapping(env, where, '{"NAME": "value"}'):
            if not isinstance(name, str) or ENV_NAME.fullmatch(name) is None:
                self._wrong(where, f"{name!r} is not a name for a variable")
            elif isinstance(value, bool) or value is None:
                say = '"1", or leave it out' if value is None else '"true" or "1"'
                self._wrong(f"{where}[{name!r}]", f"has to be a text: write {say}")
            elif isinstance(value, (str, int, float, os.PathLike)):
                found[name] = str(os.fspath(value) if isinstance(value, os.PathLike) else value)
            else:
                self._wrong(f"{where}[{name!r}]", f"has to be a text, and is {_kind(value)}")
        return found

    def listed(self, value: Any, where: str) -> List[str]:
        """A list of texts, or one text with commas."""
        if value is None:
            return []
        value = _literal(value, "[")
        if isinstance(value, str):
            return [item.strip() for item in value.split(",") if item.strip()]
        if not isinstance(value, (list, tuple, set, frozenset)):
            self._wrong(where, f"has to be a list of texts, and is {_kind(value)}")
            return []
        found = []
        for item in sorted(value) if isinstance(value, (set, frozenset)) else value:
            if isinstance(item, (str, os.PathLike)) and "," not in os.fspath(item):
                found.append(os.fspath(item))
            else:
                self._wrong(where, f"{item!r} is not a text without a comma")
        return found

    def duration(self, value: Any) -> Optional[str]:
        """A timedelta or seconds; a text as a job file says it."""
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if isinstance(value, str):
            return f"{value}s" if value.strip().isdecimal() else value
        try:
            return f"{seconds_of(value):g}s"
        except ValueError:
            self._wrong("timeout", f'{value!r} is no duration: write "2h", or a timedelta')
            return None

    def _mapping(self, value: Any, where: str, example: str) -> Sequence[Tuple[Any, Any]]:
        if value is None or (isinstance(value, str) and not value.strip()):
            return ()
        value = _literal(value, "{")
        if not isinstance(value, Mapping):
            self._wrong(where, f"has to be a mapping like {example}, and is {_kind(value)}")
            return ()
        return tuple(value.items())

    def _wrong(self, where: str, message: str) -> None:
        self.problems.append(Problem(message, file=where))


def quoted(arguments: Sequence[str], program: bool = True) -> str:
    """Arguments as a text from which a shell makes exactly these again.

    With ``program`` the first is what is run: not taken for a variable's assignment or a word of
    the shell's own. ``${`` is kept from the job file's references to other keys.
    """
    found = [shlex.quote(argument) for argument in arguments]
    if program and found and ("=" in found[0] or found[0] in _SHELL_WORDS):
        found[0] = found[0] if found[0].startswith("'") else f"'{found[0]}'"
    return " ".join(found).replace("${", "$''{")


def _literal(value: Any, opening: str) -> Any:
    """What a template as a whole gave: the text of a list or mapping, in JSON or as Python has it.

    Any other value as it is, for its reader to judge.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(opening):
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
    """A relative path from the folder of the DAG's file on; others as they are."""
    if folder is None or is_url(path) or os.path.isabs(path) or is_text_of_job(path):
        return path
    return os.path.normpath(os.path.join(folder, path))


def _file_from(folder: Optional[str], file: str) -> str:
    """The same of ``source[::name][#archive]``."""
    source, name, rest = file.partition("::")
    return _from(folder, source) + name + rest


def is_text_of_job(conf_file: str) -> bool:
    """Whether it is a job file's text instead of the place where one is."""
    return conf_file.lstrip().startswith("<")


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
