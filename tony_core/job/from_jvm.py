"""Warnings of what a job file of the JVM TonY means otherwise here, beyond each key's own check.

``docs/from-jvm-tony.md`` lists every difference with its reason.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Tuple

from tony_core.job.keys.key import Status
from tony_core.job.keys.table import table
from tony_core.job.mask import mask_text
from tony_core.job.problems import Problem, Severity
from tony_core.job.settings import Settings
from tony_core.job.spec import Job, Tracking
from tony_core.job.xmlfile import Entry

PAGE = "docs/from-jvm-tony.md"
_SECURITY = "tony.application.security.enabled"
_PORTAL = (
    "they are the login of the JVM TonY's portal, and there is no portal; a job logs in by"
    " tony.kerberos.principal and tony.kerberos.keytab"
)
_ON_CLUSTERS = "the scheduler {scheduler} knows no Kerberos"
_KERBEROS = {
    _SECURITY: _ON_CLUSTERS,
    "tony.keytab.user": _PORTAL,
    "tony.keytab.location": _PORTAL,
    "tony.other.namenodes": _ON_CLUSTERS,
}


def _has_several_tasks(job: Job) -> bool:
    return sum(role.instances for role in job.roles if role.tracking is Tracking.TRACKED) > 1


def _preprocesses(job: Job) -> bool:
    return job.master.preprocess is not None


def _always(job: Job) -> bool:
    return True


#: Keys whose default is another one: the JVM's, and the jobs that it makes a difference to.
DEFAULTS: Dict[str, Tuple[str, Callable[[Job], bool]]] = {
    "tony.am.retry-count": ("0", _always),
    "tony.application.fail-on-worker-failure-enabled": ("false", _has_several_tasks),
    "tony.container.allocation.timeout": ("off", _has_several_tasks),
    "tony.container.registration.timeout": ("off", _always),
    "tony.am.memory": ("2g", _preprocesses),
}


def is_from_jvm(entries: Iterable[Entry]) -> bool:
    """Whether a job has keys that only the JVM TonY's users write."""
    for entry in entries:
        found = table().find(entry.key)
        if entry.key in _KERBEROS or (found is not None and found.key.status is not Status.LIVE):
            return True
    return False


def check_defaults(job: Job, settings: Settings) -> List[Problem]:
    """Warn of defaults that differ and that the job leaves unset, in one line."""
    found = [
        f"{key} ({there} there, {table().by_name[key].default} here)"
        for key, (there, matters) in DEFAULTS.items()
        if not settings.is_set(key) and matters(job)
    ]
    if not found:
        return []
    message = f"job file of the JVM TonY; defaults that differ: {', '.join(found)}; see {PAGE}"
    return [Problem(message, severity=Severity.WARNING)]


def check_meanings(job: Job, settings: Settings) -> List[Problem]:
    """Warn of keys that mean something else here."""
    found = []
    started = settings.entry("tony.am.startup-timeout")
    if started is not None and started.text.strip().isdigit():
        found.append(
            _warning(started, f"{started.text.strip()!r} is in seconds; write the unit (10m)")
        )
    allocated = settings.entry("tony.container.allocation.timeout")
    if allocated is not None and not settings.is_set("tony.container.registration.timeout"):
        message = "limits the wait for containers; up to 0.4.7 of the JVM TonY it was the time that"
        other = "tony.container.registration.timeout"
        found.append(_warning(allocated, f"{message} one had to register, which is {other} here"))
    served = settings.entry("tony.<role>.instances", role="ps")
    has_ps = job.framework == "pytorch" and any(role.name == "ps" for role in job.roles)
    if has_ps and served is not None and not settings.is_set("tony.<role>.command", role="ps"):
        message = "a ps gets no RANK, WORLD and INIT_METHOD here, and a program that reads them"
        found.append(_warning(served, f"{message} fails; PyTorch needs no ps: set it to 0"))
    final = [entry for entry in settings.entries.values() if entry.final]
    own = [entry.key for entry in final if not settings.is_from_site(entry)]
    if own:
        message = f"final here: --conf cannot change {', '.join(own)}; there it could"
        found.append(Problem(message, severity=Severity.WARNING))
    for role in job.roles:
        memory, cores = role.resources.memory_mb, role.resources.vcores
        if role.name == "tensorboard" and role.generated and (memory < 2048 or cores < 2):
            message = f"TensorBoard has {memory} MB and {cores} core here; there 2 GB and two"
            keys = "tony.tensorboard.memory and tony.tensorboard.vcores set them"
            found.append(Problem(f"{message}; {keys}", severity=Severity.WARNING))
    sources = dict.fromkeys(file.source for role in job.roles for file in role.files)
    folders = [each for each in sources if _may_be_a_folder(each)]
    if folders:
        message = "if it is a folder, it arrives as a folder of its name, not as its files"
        text = mask_text(f"{', '.join(folders)}: {message}")
        found.append(Problem(text, severity=Severity.WARNING))
    return found


def _may_be_a_folder(source: str) -> bool:
    on_hdfs = source.startswith(("hdfs://", "viewfs://"))
    return on_hdfs and "." not in source.rstrip("/").rpartition("/")[2]


def _warning(entry: Entry, message: str) -> Problem:
    return Problem(message, entry.key, entry.source, entry.line, Severity.WARNING)


def check_kerberos_keys(job: Job, settings: Settings) -> List[Problem]:
    """Warn of keys for a secure cluster that have no effect; once for each reason."""
    where: Dict[str, List[str]] = {}
    for key, reason in _KERBEROS.items():
        entry = settings.entry(key)
        if entry is None or (key == _SECURITY and entry.text.strip().lower() == "false"):
            continue
        if reason is _ON_CLUSTERS and job.scheduler != "local":
            continue  # its scheduler compares them with the cluster
        reason = reason.format(scheduler=job.scheduler)
        where.setdefault(reason, []).append(f"{key} ({entry.where})")
    return [
        Problem(f"of no effect: {', '.join(keys)}: {reason}", severity=Severity.WARNING)
        for reason, keys in where.items()
    ]
