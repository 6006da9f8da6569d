"""Properties that hold words of a command line, and properties that do nothing here.

The JVM plugin started ``java ... TonyClient`` with the words of ``main.args`` before those that it
made of other properties; of an option that stood there twice the client took the first. So what
``main.args`` says of an option is stronger than the property of its name. ``conf``, ``shell_env``
and ``container_env`` are lists of ``KEY=VALUE``, apart by blanks, with a shell's quotes. A ``conf``
without a key of ours is a property of the flow's own.
"""

from __future__ import annotations

import re
import shlex
from typing import Dict, List, Mapping, NoReturn, Tuple

from tony_core.dataclass import dataclass, field
from tony_core.job.problems import JobError, Problem, Severity, did_you_mean
from tony_core.job.units import ENV_NAME

MAIN_ARGS = "main.args"
CONF = "conf"
LISTS = (CONF, "shell_env", "container_env")
KEYS = "tony."
OPTIONS = (
    "executes",
    "task_params",
    "src_dir",
    "python_venv",
    "python_binary_path",
    "conf_file",
    "hdfs_classpath",
    "sidecar_tensorboard_log_dir",
)
ENV, WORKER_ENV = "env.", "worker_env."
#: Of ``env.X``: where a job is submitted, and as whom.
OF_SUBMIT = frozenset(("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "TONY_HOME", "YARN_CONF_DIR"))
_OF_MACHINE = ("PATH", "JAVA_HOME", "LD_LIBRARY_PATH", "TONY_CONF_DIR")
_OF_HADOOP = ("HADOOP_", "YARN_")
#: What other job types of Hadoop start a JVM with.
_OF_JVM = (
    "Xms",
    "Xmx",
    "classpath",
    "hadoop.global.opts",
    "java.class",
    "jvm.args",
    "obtain.binary.token",
    "obtain.hcat.token",
    "obtain.jobtracker.token",
    "obtain.namenode.token",
    "other.hdfs.namenodes",
)
_OUR_KEY = re.compile(rf"(?:^|[\s'\"]){re.escape(KEYS)}")
_INJECTED = ("hadoop-inject.", "hadoop-conf.")


@dataclass(frozen=True)
class Words:
    """What the properties say in words of a submit."""

    options: Mapping[str, str] = field(default_factory=dict)  # of main.args
    conf: Mapping[str, str] = field(default_factory=dict)
    shell_env: Mapping[str, str] = field(default_factory=dict)
    container_env: Mapping[str, str] = field(default_factory=dict)
    left: Tuple[str, ...] = ()  # words of main.args that belong to no option


def read_words(props: Mapping[str, str]) -> Words:
    """Out of ``main.args`` and the lists; JobError that names the property."""
    options: Dict[str, str] = {}
    lists: Dict[str, Dict[str, str]] = {
        name: dict(_pair(word, name, name) for word in _split(props, name))
        if name != CONF or _is_conf_ours(props)
        else {}
        for name in LISTS
    }
    left: List[str] = []
    words = iter(_split(props, MAIN_ARGS))
    for word in words:
        option, equals, value = word.partition("=")
        name = option.lstrip("-").replace("-", "_")
        if not option.startswith("-") or not name:
            left.append(word)
            continue
        if name not in (*OPTIONS, *LISTS):
            near = did_you_mean(name, (*OPTIONS, *LISTS))
            _refuse(f"{option} is no option of a submit{near}", MAIN_ARGS)
        if not equals:
            following = next(words, None)
            if following is None:
                _refuse(f"{option} needs a value", MAIN_ARGS)
            value = following
        if name in lists:
            key, text = _pair(value, MAIN_ARGS, name, f"{option}: ")
            lists[name][key] = text
        else:
            options.setdefault(name, value)
    conf, shell_env, container_env = (lists[name] for name in LISTS)
    return Words(options, conf, shell_env, container_env, tuple(left))


def _is_conf_ours(props: Mapping[str, str]) -> bool:
    return _OUR_KEY.search(props.get(CONF, "")) is not None


def is_of_submitter(name: str) -> bool:
    """Whether a variable is about the machine that submits: it would break another."""
    return name in OF_SUBMIT or name in _OF_MACHINE or name.startswith(_OF_HADOOP)


def without_effect(props: Mapping[str, str]) -> List[Problem]:
    """A line for each kind of property that is known and does nothing."""
    found = []
    jvm = sorted(key for key, text in props.items() if _is_of_jvm(key, text))
    if jvm:
        found.append(f"of no effect here, since no JVM is started: {', '.join(jvm)}")
    ours = sorted(
        key
        for key, text in props.items()
        if text and key.startswith(ENV) and _is_without_effect(key, props)
    )
    if ours:
        found.append(
            f"of no effect here: {', '.join(ours)} (a variable of the tasks is {WORKER_ENV}NAME)"
        )
    if props.get(CONF, "").strip() and not _is_conf_ours(props):
        found.append(f"of no effect here: {CONF} (no {KEYS}KEY=VALUE is in it)")
    left = len(read_words(props).left)  # not quoted: one may be a secret
    if left:
        found.append(
            f"of no effect here: {left} of the words of {MAIN_ARGS} belong to no option (a value"
            " with blanks needs quotes)"
        )
    return [Problem(text, severity=Severity.WARNING) for text in found]


def _is_without_effect(key: str, props: Mapping[str, str]) -> bool:
    """Whether a variable reaches no task, and means nothing to the submit."""
    name = key[len(ENV) :]
    if ENV_NAME.fullmatch(name) is None:
        return True
    return is_of_submitter(name) and name not in OF_SUBMIT and WORKER_ENV + name not in props


def _is_of_jvm(key: str, text: str) -> bool:
    if text.strip().lower() in ("", "false"):
        return False
    return key in _OF_JVM or key.startswith(_INJECTED)


def _split(props: Mapping[str, str], key: str) -> List[str]:
    try:
        return shlex.split(props.get(key, ""))
    except ValueError as error:
        _refuse(f"cannot be split into words: {error}", key)


def _pair(word: str, key: str, kind: str, before: str = "") -> Tuple[str, str]:
    name, equals, text = word.partition("=")
    name = name.strip()
    # The word itself may be a secret: it is not quoted.
    if not equals or not name or (kind != CONF and ENV_NAME.fullmatch(name) is None):
        what = "" if kind == CONF else ", with the name of an environment variable"
        _refuse(f"{before}expected KEY=VALUE{what}", key)
    return name, text


def _refuse(message: str, key: str) -> NoReturn:
    raise JobError([Problem(message, key)])
