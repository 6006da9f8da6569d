"""Checks of a whole job: all problems at once."""

from __future__ import annotations

import os.path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple
from urllib.parse import urlsplit

from tony_core.job.keys.key import Kind
from tony_core.job.keys.table import table
from tony_core.job.layers import SHIP_KEYTAB
from tony_core.job.limits import check_limits
from tony_core.job.problems import Problem, Severity, did_you_mean, problem_at
from tony_core.job.settings import Settings, is_remote, is_url
from tony_core.job.spec import Job, Mode, RestartScope, Role, TokenRefresh, Tracking


class Complaint(Protocol):
    """A problem that a framework finds: a :class:`Problem`, or anything like it."""

    @property
    def message(self) -> str:
        """What is wrong."""

    @property
    def key(self) -> Optional[str]:
        """The key to change, if there is one."""


FRAMEWORK = "tony.application.framework"
FrameworkChecks = Mapping[str, Callable[[Job], Sequence[Complaint]]]

MOST_TASKS = 100_000
MOST_OF_ONE_TASK = {"memory_mb": 64 * 1024 * 1024, "vcores": 16_384, "gpus": 1_024}
LEAST_INTERVAL_S = 0.01
LEAST_MEMORY_MB = 64  # a Python that imports numpy takes more
LEAST_SILENCE_S = 0.05  # what any process may be kept from running on a busy machine
_ELASTIC_INTERVAL = "tony.application.elastic-interval"
# What new tasks of an elastic role wait for beside the interval: other tasks, the programs' end.
ELASTIC_ROOM_S = 60.0
_WITH_HOST = ("http", "https", "webhdfs", "swebhdfs", "s3", "gs")


def validate(
    job: Job,
    settings: Settings,
    frameworks: Optional[FrameworkChecks] = None,
    needs_command: bool = True,
) -> List[Problem]:
    problems: List[Problem] = []
    problems += _commands(job, settings, needs_command)
    problems += _roles(job)
    problems += check_elastic(job)
    problems += check_restart_scope(job)
    problems += check_stall_timeouts(job)
    problems += _cycle(job)
    problems += _amounts(job)
    problems += _small_memory(job, settings)
    problems += check_limits(job)
    problems += _docker_roles(job, settings)
    problems += _urls(job, settings)
    problems += _times(job)
    problems += _login(job)
    lost = any((problem.key or "").endswith(".instances") for problem in settings.problems)
    if frameworks is not None:
        found = _framework(job, frameworks)
        # Without the right tasks its complaints about them would only mislead.
        problems += [item for item in found if not lost or item.key == FRAMEWORK]
    return problems


def _commands(job: Job, settings: Settings, needed: bool) -> List[Problem]:
    names = [role.name for role in job.roles if not role.command]
    if not names:
        return []
    own = f"tony.{names[0]}.command" if len(names) == 1 else "tony.<role>.command"
    message = (
        f"no command for {', '.join(names)}: give --executes, {own} or tony.containers.command"
    )
    # The file where it is missing: it stands in no line.
    files = [entry.source for entry in settings.entries.values() if entry.line is not None]
    file = next((file for file in files if file != settings.site_file), None)
    severity = Severity.ERROR if needed else Severity.WARNING
    return [Problem(message, file=file, severity=severity)]


def _roles(job: Job) -> List[Problem]:
    problems = []
    if not any(role.tracking is Tracking.TRACKED for role in job.roles):
        names = ", ".join(role.name for role in job.roles)
        problems.append(Problem(f"there is nothing to wait for: {names} are not tracked"))
    for role in job.roles:
        if role.name == "chief" and role.instances > 1:
            message = f"there can be only one chief, not {role.instances}"
            problems.append(problem_at(job, "tony.chief.instances", message))
        if role.name == "chief" and role.tracking is not Tracking.TRACKED:
            key = f"tony.application.{role.tracking.value}.jobtypes"
            problems.append(problem_at(job, key, "the chief ends the job, so it must be tracked"))
    return problems


def _cycle(job: Job) -> List[Problem]:
    after: Dict[str, tuple[str, ...]] = {role.name: role.depends_on for role in job.roles}
    done: Dict[str, bool] = {}
    for start in after:
        # Depth first, with an explicit path: it is the message.
        path: List[str] = [start]
        iterators = [iter(after[start])]
        while iterators:
            name = next(iterators[-1], None)
            if name is None:
                iterators.pop()
                done[path.pop()] = True
            elif name in path:
                loop = [*path[path.index(name) :], name]
                key = f"tony.{loop[0]}.depends-on"
                if not job.setting(key):
                    key = "tony.application.training-stage"
                return [problem_at(job, key, f"roles wait for each other: {' -> '.join(loop)}")]
            elif name in after and name not in done:
                path.append(name)
                iterators.append(iter(after[name]))
    return []


def _amounts(job: Job) -> List[Problem]:
    problems = []
    tasks = sum(role.instances for role in job.roles)
    if tasks > MOST_TASKS:
        biggest = max(job.roles, key=lambda role: role.instances).name
        message = f"{tasks} tasks are more than {MOST_TASKS}, the most a job may have"
        problems.append(problem_at(job, f"tony.{biggest}.instances", message))
    requests = [(role.name, role.resources) for role in job.roles]
    requests.append(("am", job.master.resources))
    for name, resources in requests:
        for field, most in MOST_OF_ONE_TASK.items():
            amount = getattr(resources, field)
            if amount is not None and amount > most:
                word = field.replace("_mb", "")
                unit = " MB" if word == "memory" else ""
                message = (
                    f"{amount}{unit} is more than one container can have: at most {most}{unit}"
                )
                problems.append(problem_at(job, f"tony.{name}.{word}", message))
    return problems


def _small_memory(job: Job, settings: Settings) -> List[Problem]:
    """Warn of bare numbers, which are in MB, where gigabytes were probably meant."""
    problems = []
    for role in job.roles:
        entry = settings.entry("tony.<role>.memory", role=role.name)
        if entry is None or not entry.text.strip().isdigit():
            continue
        if role.resources.memory_mb < LEAST_MEMORY_MB:
            text = entry.text.strip()
            message = f"{text!r} is {text} MB; for gigabytes write {text}g"
            problems.append(Problem(message, entry.key, entry.source, entry.line, Severity.WARNING))
    return problems


def _docker_roles(job: Job, settings: Settings) -> List[Problem]:
    names = [role.name for role in job.roles]
    problems = []
    for entry, parts in settings.entries_like("tony.docker.<role>.image"):
        role = parts["role"]
        if role not in names and f"tony.{role}.instances" not in settings.entries:
            hint = did_you_mean(role, names)
            severity = Severity.ERROR if hint else Severity.WARNING
            message = f"there is no role {role!r}{hint}"
            problems.append(Problem(message, entry.key, entry.source, entry.line, severity))
    return problems


def _urls(job: Job, settings: Settings) -> List[Problem]:
    problems = []
    for entry in settings.entries.values():
        found = table().find(entry.key)
        if found is None:
            continue
        if found.key.kind is Kind.PATH:
            texts = [entry.text.strip()]
        elif found.key.kind is Kind.FILES:
            texts = [text.strip() for text in entry.text.split(",")]
        else:
            continue
        for text in texts:
            wrong = bad_url(text)
            if wrong:
                problems.append(Problem(wrong, entry.key, entry.source, entry.line))
    url = job.history.portal_url
    if url and (not url.startswith(("http://", "https://")) or bad_url(url)):
        message = bad_url(url) or f"{url!r} is not an http or https URL"
        problems.append(problem_at(job, "tony.portal.url", message))
    return problems


def _login(job: Job) -> List[Problem]:
    """A principal and a keytab go together, and the keytab is a file of this machine."""
    principal, keytab = "tony.kerberos.principal", "tony.kerberos.keytab"
    if bool(job.hadoop.principal) != bool(job.hadoop.keytab):
        named, missing = (principal, keytab) if job.hadoop.principal else (keytab, principal)
        return [problem_at(job, named, f"is set and {missing} is not: set both, or neither")]
    if job.hadoop.keytab and is_remote(job.hadoop.keytab):
        return [problem_at(job, keytab, f"{job.hadoop.keytab} is not a file of this machine")]
    return _shipped_keytab(job)


def _shipped_keytab(job: Job) -> List[Problem]:
    """Whether the job names the keytab that it ships, and sends tokens by TLS only."""
    if not job.hadoop.ship_keytab:
        if job.hadoop.refresh is TokenRefresh.LEAVE:
            return []
        message = f"of no effect without {SHIP_KEYTAB}: the job gets no fresh tokens"
        return [problem_at(job, "tony.kerberos.refresh", message, Severity.WARNING)]
    if not job.network.tls and job.scheduler != "local":
        message = (
            f"is false, and with {SHIP_KEYTAB} the master sends fresh tokens to executors, by TLS"
            " only: leave this key out"
        )
        return [problem_at(job, "tony.task.tls", message)]
    return []


def bad_url(text: str) -> str:
    """The mistake in a URL; empty for a path or a valid URL."""
    if not is_url(text):
        return ""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        return f"{text!r} is not a URL: {error}"
    if parts.scheme in _WITH_HOST and not parts.hostname:
        return f"{text!r} names no host"
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        return f"{text!r} names a host: a file URL has three slashes"
    return ""


def _times(job: Job) -> List[Problem]:
    problems = []
    for key, seconds in (
        ("tony.task.heartbeat-interval-ms", job.timeouts.heartbeat_s),
        ("tony.task.metrics-interval-ms", job.metrics.interval_s),
    ):
        if seconds < LEAST_INTERVAL_S:
            problems.append(problem_at(job, key, "must be at least 10 ms"))
    silence = job.timeouts.heartbeat_s * job.timeouts.max_missed_heartbeats
    if silence < LEAST_SILENCE_S and not problems:
        message = (
            f"{job.timeouts.max_missed_heartbeats} heartbeats of"
            f" {job.timeouts.heartbeat_s * 1000:g} ms are {silence * 1000:g} ms: a task that"
            f" pauses for so long would be lost; at least {LEAST_SILENCE_S * 1000:g} ms are needed"
        )
        problems.append(problem_at(job, "tony.task.max-missed-heartbeats", message))
    return problems


def _framework(job: Job, frameworks: FrameworkChecks) -> List[Problem]:
    check = frameworks.get(job.framework)
    if check is None:
        known = ", ".join(sorted(frameworks))
        hint = did_you_mean(job.framework, sorted(frameworks))
        message = f"unknown framework {job.framework!r}{hint}; known here: {known}"
        return [problem_at(job, FRAMEWORK, message)]
    return [
        complaint
        if isinstance(complaint, Problem)
        else problem_at(job, complaint.key or FRAMEWORK, complaint.message)
        for complaint in check(job)
    ]


def check_elastic(job: Job) -> List[Problem]:
    problems = []
    for role in job.roles:
        why = _why_not_elastic(job, role)
        if why is not None:
            problems.append(problem_at(job, f"tony.{role.name}.min-instances", why))
    times = job.timeouts
    too_long = times.elastic_interval_s + ELASTIC_ROOM_S >= times.registry_s
    if any(role.is_elastic for role in job.roles) and too_long:
        message = (
            "new tasks wait that long, and their executors give up after"
            f" tony.task.executor.registry-timeout-sec={times.registry_s:g}s: it must be shorter"
            f" by more than {ELASTIC_ROOM_S:g} s"
        )
        problems.append(problem_at(job, _ELASTIC_INTERVAL, message))
    return problems


def _why_not_elastic(job: Job, role: Role) -> Optional[str]:
    count = f"tony.{role.name}.instances ({role.instances})"
    if role.least > role.instances:
        return f"{role.least} are more than {count}"
    if not role.is_elastic:
        return None
    if job.mode is not Mode.GANG:
        return (
            f"only a gang is elastic: with tony.application.distributed-mode={job.mode.value}"
            f" every task starts by itself; it must equal {count}"
        )
    if role.tracking is not Tracking.TRACKED:
        kind = role.tracking.value
        return f"{role.name} is {kind}: only a tracked role is elastic; it must equal {count}"
    waiting = [other.name for other in job.roles if role.name in other.depends_on]
    if waiting:
        return (
            f"{', '.join(waiting)} wait for every {role.name}, so their number must be"
            f" fixed: it must equal {count}"
        )
    return None


def check_restart_scope(job: Job) -> List[Problem]:
    """Problems of the roles whose single tasks are to be restarted."""
    problems = []
    for role in job.roles:
        why = _why_no_task_restart(role) if role.restart_scope is RestartScope.TASK else None
        if why is not None:
            problems.append(problem_at(job, f"tony.{role.name}.restart-scope", why))
    return problems


LEAST_STALL_S = 1.0


def check_stall_timeouts(job: Job) -> List[Problem]:
    """Problems of the times after which programs count as stalled."""
    limits = [(f"tony.{role.name}.stall-timeout", role.stall_s) for role in job.roles]
    limits.append(("tony.task.stall-timeout", job.timeouts.stall_s))
    short = f"is too short; expected {LEAST_STALL_S:g}s or more, or off"
    return [
        problem_at(job, key, f"{limit:g}s {short}")
        for key, limit in limits
        if limit is not None and limit < LEAST_STALL_S
    ]


def _why_no_task_restart(role: Role) -> Optional[str]:
    if role.is_elastic:
        return (
            f"{role.name} is elastic, and losing one of its tasks starts a new round for all;"
            " it must be session"
        )
    if role.name == "chief":
        return "the other tasks depend on the chief and restart with it; it must be session"
    return None


def named_sources(job: Job) -> Iterator[Tuple[str, str]]:
    """(key, source) of everything that is sent with the job, apart from hdfs_classpath: what is
    missing of it is skipped when staged."""
    if job.program.src:
        yield "tony.client.src-dir", job.program.src
    if job.program.venv:
        yield "tony.client.python-venv", job.program.venv
    for ref in job.files:
        yield "tony.containers.resources", ref.source
    for ref in job.master.files:
        yield "tony.am.resources", ref.source
    for role in job.roles:
        for ref in role.files:
            yield f"tony.{role.name}.resources", ref.source
    for key, path in (
        ("tony.application.hadoop.location", job.hadoop.location),
        ("tony.application.hdfs-conf-path", job.hadoop.hdfs_conf),
        ("tony.application.yarn-conf-path", job.hadoop.yarn_conf),
        ("tony.application.mapred-conf-path", job.hadoop.mapred_conf),
    ):
        if path:
            yield key, path.partition("#")[0]


def missing_sources(job: Job, exists: Callable[[str], bool] = os.path.exists) -> List[Problem]:
    """A problem for each local source that does not exist."""
    problems: List[Problem] = []
    for key, source in dict.fromkeys(named_sources(job)):
        if not is_remote(source) and not exists(source):
            words = f"{source} does not exist{_relative_to(job, key, source)}"
            problems.append(problem_at(job, key, words))
    return problems


def _relative_to(job: Job, key: str, source: str) -> str:
    """For a relative path: the folder that it is taken from, which is nowhere in the file."""
    for item in job.setting(key).split(","):
        path = item.strip().partition("::")[0].partition("#")[0]
        if not path or path.startswith("/") or is_url(path):
            continue
        tail = f"/{os.path.normpath(path)}"
        if source.endswith(tail):
            folder = source[: -len(tail)] or "/"
            return f" ({path} is taken from the folder you submit from, {folder})"
        if path.startswith(".") and os.path.basename(source) == os.path.basename(tail):
            return f" ({path} is taken from the folder you submit from)"
    return ""
