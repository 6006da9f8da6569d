"""Checks of a job before anything is staged: why it can never run on this machine.

Only what is certain is refused. The roles that wait for no other are one gang and must fit
together; a role of a later stage has to fit by itself, a sidecar container by container.
"""

from __future__ import annotations

import os
import re
from typing import List, Optional

from tony_core.files.location import OBJECT_STORES, is_remote, local_path, scheme_of
from tony_core.job.problems import problem_at
from tony_core.job.spec import Job, Mode, Role, Tracking
from tony_core.schedulers.local import capacity, home, images
from tony_core.schedulers.local.allocation import Capacity, Demand, never_fits, total
from tony_core.schedulers.local.applications import find_interpreter
from tony_core.schedulers.port import SchedulerError

_TENSORBOARD = "tensorboard"  # the role that serves it, instead of the chief
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
_FOR_A_CLUSTER = re.compile(
    r"tony\.(?:"
    r"[^.]+\.(?:node-label|placement-spec|allocation-tags)"
    r"|application\.num-client-rm-connect-retries"
    r"|kerberos\.(?:ship-keytab|refresh)"
    r")$"
)


def find_problems(job: Job) -> List[str]:
    """Why the job can never run here; empty if it can."""
    problems = [*_names(job), *_resources(job), *_places(job)]
    problems += images.find_problems(job, os.environ, home.home_root())
    if find_interpreter(job) is None:
        problems.append(
            f"tony.runtime.python: there is no program {job.runtime.python} on this machine"
        )
    try:
        room = capacity.capacity(job.local, gpus=any(role.resources.gpus for role in job.roles))
    except SchedulerError as error:
        return [*problems, str(error)]
    return [*problems, *_ports(job), *_sizes(job, room)]


def _ports(job: Job) -> List[str]:
    """Tasks that run at the same time on one machine share its ports."""
    span = job.network.port_range
    if span is None:
        return []
    there = span[1] - span[0] + 1
    # Where nothing starts together, the neediest task is all that is certain.
    waves = _waves(job) or [[role._replace(instances=1)] for role in job.roles]
    need, wave = max(
        ((sum(_count_ports(job, role) for role in wave), wave) for wave in waves),
        key=lambda pair: pair[0],
    )
    if need <= there:
        return []
    names = " + ".join(f"{role.instances} x {role.name}" for role in wave)
    held = f"{there} port{'s' if there > 1 else ''}"
    message = (
        f"{span[0]}-{span[1]} are {held}, and {names} need {need} on this machine"
        " (one for each task, and TensorBoard's)"
    )
    return [str(problem_at(job, "tony.task.port-range", message))]


def _count_ports(job: Job, role: Role) -> int:
    if any(other.name == _TENSORBOARD for other in job.roles):
        return role.instances + (role.name == _TENSORBOARD)
    return role.instances + (job.chief is not None and role.name == job.chief[0])


def _waves(job: Job) -> List[List[Role]]:
    """The roles that start together, and then by themselves those that wait for another."""
    if job.mode is not Mode.GANG:
        return []
    gang = [
        role._replace(instances=role.least)  # of an elastic role its minimum is the gang
        for role in job.roles
        if role.tracking is not Tracking.SIDECAR
    ]
    first = [role for role in gang if not role.depends_on]
    return ([first] if first else []) + [[role] for role in gang if role.depends_on]


def _sizes(job: Job, room: Capacity) -> List[str]:
    problems: List[str] = []
    for role in job.roles:
        for words in never_fits(room, _demand(role, 1)):
            problems.append(f"{role.name}: one container never fits: {words}")
    if problems:
        return problems
    for stage in _waves(job):
        demand = total(_demand(role, role.instances) for role in stage)
        for words in never_fits(room, demand):
            names = " + ".join(f"{role.instances} x {role.name}" for role in stage)
            problems.append(f"{names} never fit on this machine together: {words}")
    return problems


def _demand(role: Role, count: int) -> Demand:
    need = role.resources
    return Demand(need.memory_mb, need.gpus, need.vcores).times(count)


def _names(job: Job) -> List[str]:
    """Queues and labels are the cluster's business; here they only have to be names."""
    found: List[str] = []

    def check(what: str, name: Optional[str]) -> None:
        if name and not _NAME.match(name):
            found.append(f"{what} {name!r} is not a name")

    # A queue may be given by its whole path (root.ml.train): dots are part of names here.
    check("the queue", job.queue)
    check("the node label", job.node_label)
    check("the master's node label", job.master.node_label)
    for role in job.roles:
        check(f"the node label of {role.name}", role.node_label)
    return found


def find_warnings(job: Job) -> List[str]:
    """The settings that have no effect without a cluster."""
    named = [
        f"{item.key} ({item.source})"
        for item in job.settings
        if item.source != "default" and _FOR_A_CLUSTER.match(item.key) and item.value.strip()
    ]
    found = []
    if named:
        found.append(f"of no effect on the embedded scheduler: {', '.join(named)}")
    if job.master.docker is not None:
        found.append("tony.docker.am.image: the embedded scheduler's master runs in no image")
    return found


def _places(job: Job) -> List[str]:
    """Folders that are written or read while the job runs: no file system but this machine's
    is built for that. Reported here with its key, not by a master that cannot start."""
    found = [
        str(
            problem_at(
                job,
                key,
                f"{place}: only a folder of this machine's own file system will do;"
                " other file systems are not built yet",
            )
        )
        for key, place in (
            ("tony.history.location", job.history.location),
            ("tony.application.checkpoint-dir", job.program.checkpoint_dir),
            ("tony.application.tensorboard-log-dir", job.program.tensorboard_log_dir),
        )
        if place and is_remote(place) and not _by_the_program(key, place)
    ]
    kept = job.history.location
    if kept and not is_remote(kept):
        why = home.why_not_written(local_path(kept))
        if why:
            words = f"{kept} cannot be written: {why}; name a folder that you can write"
            found.append(str(problem_at(job, "tony.history.location", words)))
    return found


def _by_the_program(key: str, place: str) -> bool:
    """Checkpoints are the program's own: ``tony.checkpoints`` keeps them elsewhere, too."""
    known = scheme_of(place) in ("hdfs", "webhdfs", "swebhdfs", *OBJECT_STORES)
    return known and key == "tony.application.checkpoint-dir"


def _resources(job: Job) -> List[str]:
    return [
        f"{role.name}: this machine has no resource {name!r}; it knows memory, vcores and gpus"
        for role in job.roles
        for name, amount in role.resources.other
        if amount > 0
    ]
