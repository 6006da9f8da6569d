"""Translates a job's properties (``type=tony``) into a job.

``executes``, ``src_dir``, ... have the meaning that they had in the JVM plugin and have in
``tony submit``; every ``tony.*`` is a key of the job (docs/keys.md). Later sources win: defaults,
the site's ``tony-site.xml``, ``site.properties``, the job file (``conf_file``, else ``tony.xml`` in
the job's folder), the job's properties. No job changes a key that the site calls final.

The JVM plugin started ``java ... TonyClient`` with the options in ``main.args`` before those that
it made of other properties, and the client took the first of two equal options. So an option in
``main.args`` takes precedence over the property of its name. ``conf``, ``shell_env`` and
``container_env`` are lists of ``KEY=VALUE``, separated by blanks, with a shell's quotes. A ``conf``
without a key ``tony.*`` is a property of the flow's own.
"""

from __future__ import annotations

import os
import re
import shlex
from types import MappingProxyType
from typing import Dict, Iterable, List, Mapping, NamedTuple, NoReturn, Optional, Tuple

from tony_azkaban.execution import Execution, merge_tags
from tony_azkaban.site import Site
from tony_core.job.keys.table import modern_name
from tony_core.job.load import JobArguments, Loaded
from tony_core.job.problems import JobError, Problem, Severity, did_you_mean
from tony_core.job.spec import Job
from tony_core.job.units import ENV_NAME

MAIN_ARGS = "main.args"
CONF = "conf"
LISTS = (CONF, "shell_env", "container_env")
KEYS = "tony."
JOB_TYPE_KEYS = ("tony.home",)  # of the job type itself, not of a job
#: Properties whose outer quotes are taken away; those in ``task_params`` are the program's.
UNQUOTED = (
    "executes",
    "src_dir",
    "python_venv",
    "python_binary_path",
    "conf_file",
    "hdfs_classpath",
)
OPTIONS = (*UNQUOTED, "task_params", "sidecar_tensorboard_log_dir")
ENV, WORKER_ENV = "env.", "worker_env."
#: The ``env.X`` that say where a job is submitted, and as which user.
OF_SUBMIT = frozenset(("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "TONY_HOME", "YARN_CONF_DIR"))
_OF_MACHINE = ("PATH", "JAVA_HOME", "LD_LIBRARY_PATH", "TONY_CONF_DIR")
_OF_CLUSTER = ("HADOOP_", "YARN_", "KRB5", "TONY_KERBEROS_")
_OUR_KEY = re.compile(rf"(?:^|[\s'\"]){re.escape(KEYS)}")
SOURCE = "src"  # the src_dir of a job that names none, if it exists
DATASETS = {
    "azkaban.input.dataset": "AZKABAN_INPUT_DATASET",
    "azkaban.output.dataset": "AZKABAN_OUTPUT_DATASET",
}
#: The loader's names for the place of a problem, and the properties that a job's author knows.
_WHERE = {
    "argument": "job properties",
    **{f"--{name}": name for name in (*UNQUOTED, "task_params") if name != "conf_file"},
    "--shell_env": "worker_env, env or shell_env",
    "--container_env": "container_env",
}
_OPTION = re.compile(r"(?<![\w-])(" + "|".join(name for name in _WHERE if name[0] == "-") + r")\b")


class SubmitOptions(NamedTuple):
    """The options of a submit in ``main.args`` and in the lists."""

    options: Mapping[str, str] = MappingProxyType({})  # in main.args
    conf: Mapping[str, str] = MappingProxyType({})
    shell_env: Mapping[str, str] = MappingProxyType({})
    container_env: Mapping[str, str] = MappingProxyType({})
    unused: Tuple[str, ...] = ()  # words in main.args that belong to no option


def read_options(props: Mapping[str, str]) -> SubmitOptions:
    """Read ``main.args`` and the lists; JobError that names the property."""
    options: Dict[str, str] = {}
    lists: Dict[str, Dict[str, str]] = {
        name: dict(_pair(word, name, name) for word in _split(props, name))
        if name != CONF or has_our_conf(props)
        else {}
        for name in LISTS
    }
    unused: List[str] = []
    words = iter(_split(props, MAIN_ARGS))
    for word in words:
        option, equals, value = word.partition("=")
        name = option.lstrip("-").replace("-", "_")
        if not option.startswith("-") or not name:
            unused.append(word)
            continue
        if name not in (*OPTIONS, *LISTS):
            near = did_you_mean(name, (*OPTIONS, *LISTS))
            _refuse(f"{option} is not an option of a submit{near}", MAIN_ARGS)
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
    return SubmitOptions(options, conf, shell_env, container_env, tuple(unused))


def has_our_conf(props: Mapping[str, str]) -> bool:
    """Whether the property ``conf`` is a list of a job's keys."""
    return _OUR_KEY.search(props.get(CONF, "")) is not None


def is_of_submitter(name: str) -> bool:
    """Whether a variable describes the machine that submits: its value would break another."""
    return name in OF_SUBMIT or name in _OF_MACHINE or name.startswith(_OF_CLUSTER)


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


def arguments(props: Mapping[str, str], site: Site, cwd: str) -> JobArguments:
    """The arguments of ``tony submit`` for these properties."""
    given = read_options(props)
    options = {
        name: given.options.get(name) or _unquoted(props.get(name, "").strip()) or None
        for name in UNQUOTED
    }
    source = options["src_dir"]
    if source is None and os.path.isdir(os.path.join(cwd, SOURCE)):
        source = SOURCE
    keys = {k: text for k, text in props.items() if k.startswith(KEYS) and k not in JOB_TYPE_KEYS}
    return JobArguments(
        executes=options["executes"],
        task_params=given.options.get("task_params")
        or props.get("task_params", "").strip()
        or None,
        src_dir=source,
        python_venv=options["python_venv"],
        python_binary_path=options["python_binary_path"],
        conf_file=options["conf_file"],
        hdfs_classpath=options["hdfs_classpath"],
        sidecar_tensorboard_log_dir=given.options.get("sidecar_tensorboard_log_dir"),
        shell_env=environment(props, given),
        container_env=given.container_env,
        extra={**keys, **given.conf},
        defaults={**site.defaults, **site.finals},
        defaults_from=site.file,
    )


def environment(props: Mapping[str, str], given: SubmitOptions = SubmitOptions()) -> Dict[str, str]:
    """The programs' variables: ``env.X``, the data sets, and ``worker_env.X`` above both."""
    found: Dict[str, str] = {}
    for key, text in props.items():
        name = key[len(ENV) :]
        # Other names cannot be a job's: they may be the server's own.
        if key.startswith(ENV) and not is_of_submitter(name) and ENV_NAME.fullmatch(name):
            found[name] = text
    for key, name in DATASETS.items():
        if props.get(key):
            found[name] = props[key].replace(",", ";")
    found.update(given.shell_env)
    wrong = []
    for key, text in props.items():
        if key.startswith(WORKER_ENV):
            name = key[len(WORKER_ENV) :]
            if ENV_NAME.fullmatch(name) is None:
                wrong.append(Problem(f"{name!r} is not the name of an environment variable", key))
            found[name] = _unquoted(text)
    if wrong:
        raise JobError(wrong)
    return found


def _unquoted(text: str) -> str:
    """The text without quotes around the whole of it, which the JVM's command line needed."""
    quote = text[:1]
    if quote in ("'", '"') and len(text) > 1 and text.find(quote, 1) == len(text) - 1:
        return text[1:-1]
    return text


def with_properties(error: JobError) -> JobError:
    """The error with the names of a job's properties for those of the command line."""
    return JobError([translate_problem(problem) for problem in error.problems])


def translate_problem(problem: Problem) -> Problem:
    """The problem with the names of a job's properties for those of the command line."""
    return problem._replace(
        message=_OPTION.sub(lambda found: _WHERE[found[1]], problem.message).replace(
            "(argument)", f"({_WHERE['argument']})"
        ),
        file=_WHERE.get(problem.file or "", problem.file),
    )


def finish(loaded: Loaded, site: Site, execution: Execution) -> Tuple[Job, List[Problem]]:
    """The job as it is submitted, and warnings; JobError for what the site forbids."""
    job = loaded.job
    sources = {item.key: item for item in job.settings}
    wrong = _finals(job, site)
    notes = [translate_problem(problem) for problem in loaded.warnings]

    def is_unset(key: str) -> bool:
        return key not in sources or sources[key].source == "default"

    if is_unset("tony.application.name"):
        job = job.replace(name=execution.job)
    if is_unset("tony.client.lease"):
        job = job.replace(timeouts=job.timeouts._replace(client_lease_s=site.lease_s))
    if site.queues:
        if is_unset("tony.yarn.queue") and not _allowed(job.queue, site):
            job = job.replace(queue=site.queues[0])
        elif not _allowed(job.queue, site):
            there = ", ".join(site.queues)
            message = f"{job.queue} is not one of this server's queues for such jobs ({there})"
            where = sources["tony.yarn.queue"]
            wrong.append(translate_problem(Problem(message, "tony.yarn.queue", where.source)))
    if wrong:
        raise JobError(wrong)
    tags, left_out = merge_tags(job.tags, execution.tags())
    if left_out:
        message = f"YARN takes ten tags: these are left out: {', '.join(left_out)}"
        notes.append(Problem(message, "tony.application.tags", severity=Severity.WARNING))
    own = dict(job.links)
    more = tuple((name, url) for name, url in execution.links if name not in own)
    return job.replace(tags=tags, links=(*job.links, *more)), notes


def _finals(job: Job, site: Site) -> List[Problem]:
    found = []
    for key, value in site.finals.items():
        for item in job.settings:
            if item.key != modern_name(key) or item.source == site.file:
                continue
            if item.value.strip() != value.strip():
                message = f"is final in {site.file}: cannot be changed"
                found.append(translate_problem(Problem(message, item.key, item.source)))
    return found


def _allowed(queue: str, site: Site) -> bool:
    return _plain(queue) in {_plain(each) for each in site.queues}


def _plain(queue: str) -> str:
    return queue.removeprefix("root.")


# ------------------------------------------------------------------ properties without effect
#
# A key ``tony.`` that is unknown is refused; but ``executes``, ``src_dir`` and their like have no
# prefix of their own, and stand among all the properties of Azkaban, other job types and a flow's
# authors. ``srcdir=code`` cannot be refused, since a flow may have a property of that name for
# itself; yet most often it is a slip, and the job does something else than its author meant. Other
# properties are known and do nothing here: the JVM's, and variables of the machine that submits.

NAMES = (*UNQUOTED, "task_params", MAIN_ARGS, *LISTS[1:], *DATASETS)
"""Our properties without a prefix; ``conf`` is too common a name to be a slip."""
PREFIXES = (WORKER_ENV, "tony_azkaban.")
"""Prefixes; what follows is the job's own, or checked elsewhere."""

#: Properties with which other job types of Hadoop start a JVM.
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
_INJECTED = ("hadoop-inject.", "hadoop-conf.")

_ALIKE = str.maketrans("-.", "__")


def find_misspelled(props: Iterable[str]) -> List[Problem]:
    """A warning for each property that is one slip away from one of ours."""
    found = []
    for key in sorted(props):
        meant = _meant(key)
        if meant:
            text = f"unknown property, which has no effect (did you mean {meant}?)"
            found.append(Problem(text, key, severity=Severity.WARNING))
    return found


def add_misspelled(problems: Iterable[Problem], props: Mapping[str, str]) -> List[Problem]:
    """The problems for which a job is refused, with the misspelled properties as a likely cause."""
    return [*problems, *(Problem(each.message, each.key) for each in find_misspelled(props))]


def find_unused(props: Mapping[str, str]) -> List[Problem]:
    """A warning for each kind of property that is known and has no effect."""
    found = []
    jvm = sorted(key for key, text in props.items() if _is_of_jvm(key, text))
    if jvm:
        found.append(f"of no effect here, since no JVM is started: {', '.join(jvm)}")
    ours = sorted(
        key
        for key, text in props.items()
        if text and key.startswith(ENV) and _is_unused_variable(key, props)
    )
    if ours:
        found.append(
            f"of no effect here: {', '.join(ours)} (a variable of the tasks is {WORKER_ENV}NAME)"
        )
    if props.get(CONF, "").strip() and not has_our_conf(props):
        found.append(f"of no effect here: {CONF} (no {KEYS}KEY=VALUE is in it)")
    left = len(read_options(props).unused)  # not quoted: one may be a secret
    if left:
        found.append(
            f"of no effect here: {left} of the words of {MAIN_ARGS} belong to no option (a value"
            " with blanks needs quotes)"
        )
    return [Problem(text, severity=Severity.WARNING) for text in found]


def _is_unused_variable(key: str, props: Mapping[str, str]) -> bool:
    """Whether a variable reaches no task, and means nothing to the submit."""
    name = key[len(ENV) :]
    if ENV_NAME.fullmatch(name) is None:
        return True
    return is_of_submitter(name) and name not in OF_SUBMIT and WORKER_ENV + name not in props


def _is_of_jvm(key: str, text: str) -> bool:
    if text.strip().lower() in ("", "false"):
        return False
    return key in _OF_JVM or key.startswith(_INJECTED)


def _meant(key: str) -> Optional[str]:
    if key in NAMES or key.startswith(PREFIXES):
        return None
    for name in NAMES:
        if _is_near(key, name):
            return name
    head, dot, rest = key.partition(".")
    for prefix in PREFIXES:
        if rest and _is_near(head + dot, prefix):
            return prefix + rest
    return None


def _is_near(key: str, name: str) -> bool:
    """Whether one slip, or another separator, makes the one of the other."""
    return is_one_edit(key.lower().translate(_ALIKE), name.translate(_ALIKE))


def is_one_edit(one: str, other: str) -> bool:
    """At most one character left out, added, replaced, or swapped with its neighbour."""
    if len(one) > len(other):
        one, other = other, one
    if len(other) - len(one) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) < len(other):
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1]
    return one[at + 1 :] == other[at + 1 :] or (swapped and one[at + 2 :] == other[at + 2 :])
