"""From a job file and the arguments of a submit, or from a Python program, to a :class:`Job`."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from tony_core.job import from_jvm, tracking
from tony_core.job.build import build_job
from tony_core.job.layers import Substitution, add_implied, check_known, merge, parse_conf
from tony_core.job.problems import JobError, Problem, did_you_mean, errors, warnings
from tony_core.job.settings import Settings, is_remote
from tony_core.job.spec import Job
from tony_core.job.units import ENV_NAME
from tony_core.job.validate import FrameworkChecks, validate
from tony_core.job.xmlfile import MOST_BYTES, Entry, read_xml

PROGRAM = "program"  # the source of what a Python program sets
SITE_FILE = "tony-site.xml"
JOB_FILE = "tony.xml"
Pairs = Union[Sequence[str], Mapping[str, str]]


class JobArguments(NamedTuple):
    """The arguments of a submit besides the job file."""

    executes: Optional[str] = None
    task_params: Optional[str] = None
    src_dir: Optional[str] = None
    python_venv: Optional[str] = None
    python_binary_path: Optional[str] = None
    conf_file: Optional[str] = None
    conf: Pairs = ()  # key=value, as on the command line, or a mapping
    shell_env: Pairs = ()
    container_env: Pairs = ()
    hdfs_classpath: Optional[str] = None
    sidecar_tensorboard_log_dir: Optional[str] = None
    scheduler: Optional[str] = None
    principal: Optional[str] = None  # to log in as, by the keytab
    keytab: Optional[str] = None
    extra: Mapping[str, str] = {}  # keys of an operator or job type
    cwd: Optional[str] = None  # what relative paths stand in; else the process's own folder
    defaults: Mapping[str, str] = {}  # keys below the job file: a site's
    defaults_from: str = "defaults"  # their source in messages
    defaults_yield: bool = False  # a command's own: what the site file made final goes before them
    from_jvm: bool = False  # it is known to be a job of the JVM TonY


class Loaded(NamedTuple):
    """A job that can be submitted, and what is worth a line about it."""

    job: Job
    warnings: Tuple[Problem, ...] = ()


def load_job(
    arguments: JobArguments,
    *,
    conf_dir: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    frameworks: Optional[FrameworkChecks] = None,
    read_bytes: Optional[Callable[[str], bytes]] = None,
    user: Optional[str] = None,
    needs_command: bool = True,
    program: Optional[Sequence[Entry]] = None,
) -> Loaded:
    """The job, or JobError with every problem.

    ``frameworks`` are the known ones with their own checks (None: any name will do).
    ``read_bytes`` reads a remote job file. ``program`` stands in for the job file.
    """
    env = os.environ if env is None else env
    cwd = cwd or arguments.cwd
    try:
        cwd = str(Path(cwd).absolute() if cwd else Path.cwd())
    except OSError:
        raise JobError([Problem("the working folder is gone")]) from None
    problems: List[Problem] = []
    site = _site_file(conf_dir, env)
    layers = [
        _read(site, problems, None) if site else [],
        [
            Entry(str(key), str(text), arguments.defaults_from, yields=arguments.defaults_yield)
            for key, text in arguments.defaults.items()
        ],
        _job_layer(arguments, cwd, problems, read_bytes) if program is None else list(program),
        parse_conf(_as_pairs(arguments.conf), problems),
        _argument_entries(arguments, problems),
    ]
    if errors(problems):
        raise JobError(_sorted(problems))
    jvm = arguments.from_jvm or from_jvm.is_from_jvm([*layers[2], *layers[3], *layers[4]])
    merged = merge(layers, problems)
    roles = [key.split(".")[1] for key in merged if key.endswith(".instances")]
    check_known(merged, problems, roles)
    user = _user(env) if user is None else user
    expanded = Substitution(merged, env, _properties(env, cwd, user)).all(problems)
    add_implied(expanded)
    settings = Settings(expanded, problems, cwd, site, arguments.defaults_from)
    job = build_job(settings, user)
    job = tracking.with_credentials(job, env)
    problems.extend(tracking.check_tracking(job, env))
    problems.extend(validate(job, settings, frameworks, needs_command))
    problems.extend(from_jvm.check_kerberos_keys(job, settings))
    if jvm:
        problems.extend(from_jvm.check_defaults(job, settings))
        problems.extend(from_jvm.check_meanings(job, settings))
    problems = _sorted(problems)
    if errors(problems):
        raise JobError(problems)
    return Loaded(job, tuple(warnings(problems)))


def job_from_xml(
    text: str,
    *,
    user: str = "",
    cwd: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    file: str = "tony-final.xml",
) -> Job:
    """The job that an unmasked XML describes; no site file and no defaults of a machine."""
    entries, problems = read_xml(text.encode("utf-8", "replace"), file)
    if errors(problems):
        raise JobError(problems)
    return load_job(
        JobArguments(), conf_dir="", env=env or {}, cwd=cwd, user=user, program=entries
    ).job


def job(
    name: Optional[str] = None,
    roles: Optional[Mapping[str, Mapping[str, Any]]] = None,
    *,
    command: Optional[str] = None,
    framework: Optional[str] = None,
    src: Optional[str] = None,
    venv: Optional[str] = None,
    python: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    conf: Optional[Mapping[str, Any]] = None,
    frameworks: Optional[FrameworkChecks] = None,
    conf_dir: Optional[str] = None,
    cwd: Optional[str] = None,
    user: Optional[str] = None,
) -> Job:
    """``job("mnist", {"worker": {"instances": 2, "memory": "2g"}}, command="python train.py")``.

    What a role holds are the ``tony.<role>.*`` keys without their beginning, with ``_`` or
    ``-`` (other resource types as ``"resource": {"fpga": 1}``). ``env`` is the program's own
    environment; ``conf`` any other keys. JobError has every problem.
    """
    entries: List[Entry] = []
    for key, value in (
        ("tony.application.name", name),
        ("tony.application.framework", framework),
        ("tony.containers.command", command),
        ("tony.client.src-dir", src),
        ("tony.client.python-venv", venv),
        ("tony.client.python-binary-path", python),
    ):
        if value is not None:
            entries.append(Entry(key, value, PROGRAM))
    for role, settings in (roles or {}).items():
        for word, value in settings.items():
            key = f"tony.{role}.{word.replace('_', '-')}"
            if word == "resource" and isinstance(value, Mapping):
                entries.extend(Entry(f"{key}.{n}", text_of(v), PROGRAM) for n, v in value.items())
            elif value is not None:
                entries.append(Entry(key, text_of(value), PROGRAM))
    entries.extend(
        Entry(f"tony.execution.env.{variable}", str(value), PROGRAM)
        for variable, value in (env or {}).items()
    )
    entries.extend(Entry(key, text_of(value), PROGRAM) for key, value in (conf or {}).items())
    return load_job(
        JobArguments(),
        conf_dir=conf_dir,
        cwd=cwd,
        frameworks=frameworks,
        user=user,
        program=entries,
    ).job


def text_of(value: Any) -> str:
    """A Python value as a job file says it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(
            f"{key}={str(text).replace(',', chr(92) + ',')}" for key, text in value.items()
        )
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(item) for item in value)
    return str(value)


def _sorted(problems: Sequence[Problem]) -> List[Problem]:
    """Errors first, then by place; each once."""
    return sorted(
        dict.fromkeys(problems), key=lambda p: (p.severity.value, p.file or "", p.line or 0)
    )


def _site_file(conf_dir: Optional[str], env: Mapping[str, str]) -> Optional[str]:
    folder = conf_dir if conf_dir is not None else env.get("TONY_CONF_DIR")
    if not folder:
        return None
    path = Path(folder) / SITE_FILE
    return str(path) if path.exists() else None


def _job_layer(
    arguments: JobArguments,
    cwd: str,
    problems: List[Problem],
    read_bytes: Optional[Callable[[str], bytes]],
) -> List[Entry]:
    if arguments.conf_file:
        return _read(arguments.conf_file, problems, read_bytes, cwd)
    if Path(cwd, JOB_FILE).exists():
        return _read(JOB_FILE, problems, None, cwd)
    return []


def _read(
    path: str, problems: List[Problem], read_bytes: Optional[Callable[[str], bytes]], cwd: str = ""
) -> List[Entry]:
    shown = path
    try:
        if is_remote(path):
            # What follows the path may be a signature that grants access.
            shown = re.split(r"[?#]", path, maxsplit=1)[0]
            if read_bytes is None:
                problems.append(Problem("cannot be read: no file system for it", file=shown))
                return []
            data = read_bytes(path)
        else:
            with Path(cwd, path.removeprefix("file://")).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error).replace(path, shown)
        if isinstance(error, FileNotFoundError) and not is_remote(path):
            reason += _describe_folder(Path(cwd, path.removeprefix("file://")))
        problems.append(Problem(f"cannot be read: {reason}", file=shown))
        return []
    entries, wrong = read_xml(data, shown)
    problems.extend(wrong)
    return entries


def _describe_folder(missing: Path) -> str:
    """The folder of a missing file, and which file there may be meant."""
    folder = missing.parent.absolute()
    try:
        names = [one.name for one in folder.iterdir()]
    except OSError:
        return f" (and no folder {folder})"
    return f" in {folder}{did_you_mean(missing.name, names)}"


def _as_pairs(words: Pairs) -> List[str]:
    if isinstance(words, Mapping):
        return [f"{key}={value}" for key, value in words.items()]
    return list(words)


def _argument_entries(arguments: JobArguments, problems: List[Problem]) -> List[Entry]:
    entries = [Entry(str(key), str(text), "argument") for key, text in arguments.extra.items()]
    for word, key, text in (
        ("--executes", "tony.client.executes", arguments.executes),
        ("--task_params", "tony.client.task-params", arguments.task_params),
        ("--src_dir", "tony.client.src-dir", arguments.src_dir),
        ("--python_venv", "tony.client.python-venv", arguments.python_venv),
        ("--python_binary_path", "tony.client.python-binary-path", arguments.python_binary_path),
        ("--hdfs_classpath", "tony.client.hdfs-classpath", arguments.hdfs_classpath),
        (
            "--sidecar_tensorboard_log_dir",
            "tony.application.tensorboard-log-dir",
            arguments.sidecar_tensorboard_log_dir,
        ),
        ("--scheduler", "tony.scheduler", arguments.scheduler),
        ("--principal", "tony.kerberos.principal", arguments.principal),
        ("--keytab", "tony.kerberos.keytab", arguments.keytab),
    ):
        if text:
            entries.append(Entry(key, text, word))
    for word, prefix, pairs in (
        ("--shell_env", "tony.execution.env.", arguments.shell_env),
        ("--container_env", "tony.containers.env.", arguments.container_env),
    ):
        variables: Dict[str, str] = {}
        for pair in _as_pairs(pairs):
            name, equals, value = pair.partition("=")
            name = name.strip()
            if not equals or ENV_NAME.fullmatch(name) is None:
                # The word itself may be a secret: only what can be a mere name is quoted.
                shown = "" if equals or ENV_NAME.fullmatch(name) is None else f"{name} "
                problems.append(Problem(f"{shown}is not NAME=value", file=word))
            else:
                variables[name] = value
        entries.extend(Entry(prefix + name, value, word) for name, value in variables.items())
    return entries


def _user(env: Mapping[str, str]) -> str:
    try:
        return env.get("USER") or getpass.getuser()
    except (KeyError, OSError, ImportError):  # a uid without a name
        return str(os.getuid())


def _temporary_folder(env: Mapping[str, str]) -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # it tries to write: a full disk matters only to users of the folder
        return env.get("TMPDIR") or "/tmp"  # noqa: S108


def _properties(env: Mapping[str, str], cwd: str, user: str) -> Dict[str, str]:
    """The properties of a JVM that job files refer to."""
    return {
        "user.name": user,
        "user.home": env.get("HOME", "/"),
        "user.dir": cwd,
        "java.io.tmpdir": _temporary_folder(env),
    }
