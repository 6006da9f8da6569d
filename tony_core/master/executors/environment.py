"""What a task sees: its variables, its ports. Pure.

From the weakest to the strongest:

1. ``PYTHONUNBUFFERED=1``, so that a log can be followed while it is written;
2. the framework's variables (``TF_CONFIG``, ``MASTER_ADDR``...), and the tracker's;
3. ``--container_env``, then ``--shell_env``: what the user says beats the framework, since
   much of a framework's environment is a matter of tuning (an interface, a timeout);
4. the task's identity (``JOB_NAME``, ``SESSION_ID``...): one text for all tasks, which is
   what a user can give, is never right for these.

A name given by the user that the framework or TonY sets as well is reported
(:func:`clashes`). The cluster spec stands once in the
message's ``shared`` part and is referred to. One variable may not be longer than 128 KiB
(the kernel's limit for one string), and a framework that needs only the rank 0 address is
not worth sending thousands of addresses to thousands of tasks: then the spec is left out,
and the story says so. The job's virtual environment is put on the PATH by the executor,
which knows where it stands on its node.
"""

from __future__ import annotations

import json
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.frameworks.base import Framework, Gang, Peer
from tony_core.job.spec import TENSORBOARD_COMMAND, Job, Role, Tracking
from tony_core.protocol.messages import WORKING_FOLDER, shared_reference

VENV = "venv"
TENSORBOARD = "tensorboard"  # the port's name, and the role that runs nothing else
CLUSTER_SPEC = "CLUSTER_SPEC"
TASK_RESTARTS = "TASK_RESTARTS"  # of one start, not of the gang: task_commands.py sets it
MAX_SPEC = 120 * 1024  # below the kernel's MAX_ARG_STRLEN, with room for the name
MAX_SENT = 64 * 1024 * 1024  # of one spec to all its tasks, when only our own page asks for it
UNSET = ("MALLOC_ARENA_MAX",)  # set by clusters for their own JVMs; slows programs down

IDENTITY = (
    "JOB_NAME", "TASK_INDEX", "TASK_NUM", "JOB_ID", "APP_ID", "IS_CHIEF", "SESSION_ID",
    "ATTEMPT_NUMBER", "NUM_AM_RETRIES", "DISTRIBUTED_MODE", "TONY_CHECKPOINT_DIR",
    "TONY_TENSORBOARD_LOG_DIR", "TB_PORT", TASK_RESTARTS,
    CLUSTER_SPEC, "MODEL_PARAMS",
)  # fmt: skip


class StartInfo(NamedTuple):
    """Values that all tasks of a start share."""

    app_id: str
    session: int
    parameters: Optional[str] = None
    has_spec: bool = True
    tracker: Mapping[str, str] = {}  # the variables of the job's tracker


def port_names(job: Job, framework: Framework, role: str, index: int) -> Tuple[str, ...]:
    """The ports a task needs: ``main``, the framework's, and TensorBoard's where it belongs."""
    names = ["main", *framework.ports(job, role, index)]
    if serves_tensorboard(job, role, index):
        names.append(TENSORBOARD)
    return tuple(dict.fromkeys(names))


def serves_tensorboard(job: Job, role: str, index: int) -> bool:
    """Whether TensorBoard's port is this task's: the tensorboard role's, else the chief's."""
    if any(item.name == TENSORBOARD for item in job.roles):
        return role == TENSORBOARD and index == 0
    return job.chief == (role, index)


def tensorboard(job: Job, role: Role, index: int) -> Optional[Dict[str, object]]:
    """What the executor needs to run TensorBoard itself; None where it must not."""
    log_dir = job.program.tensorboard_log_dir
    own = role.command == TENSORBOARD_COMMAND
    if not log_dir or not serves_tensorboard(job, role.name, index):
        return None
    if role.name == TENSORBOARD and not own:
        return None  # the user's own command serves it
    return {"log_dir": log_dir, "pythons": pythons(job), "port": TENSORBOARD}


def pythons(job: Job) -> List[str]:
    """Where TensorBoard may be found: the job's own environment first, the site's last."""
    own = [f"{VENV}/bin/python"] if job.program.venv else []
    named = [job.program.python] if job.program.python else []
    return list(dict.fromkeys([*named, *own, job.runtime.python, "python3"]))


def cluster_spec(gang: Gang) -> str:
    """JSON: role -> addresses of its tasks in their order; sidecars are no part of it."""
    spec: Dict[str, List[str]] = {}
    for peer in sorted(gang.peers, key=lambda peer: peer.index):
        if gang.role(peer).tracking is not Tracking.SIDECAR:
            spec.setdefault(peer.role, []).append(peer.address())
    order = {role.name: at for at, role in enumerate(gang.job.roles)}
    return json.dumps(dict(sorted(spec.items(), key=lambda item: order[item[0]])))


def shared_texts(gang: Gang, framework: Framework) -> Dict[str, str]:
    """What is encoded once for all tasks: the cluster spec and the framework's own texts."""
    spec = cluster_spec(gang)
    sent = len(spec) * len(gang.starting or gang.peers)
    fits = len(spec) <= MAX_SPEC and (framework.needs_full_spec or sent <= MAX_SENT)
    fits = fits and gang.job.shares_addresses
    return {**({CLUSTER_SPEC: spec} if fits else {}), **framework.shared(gang)}


def identity_variables(gang: Gang, peer: Peer, info: StartInfo) -> Dict[str, str]:
    """The variables that say which task of which session of which job this is."""
    job = gang.job
    session = str(info.session)
    env = {
        "JOB_NAME": peer.role,
        "TASK_INDEX": str(peer.index),
        "TASK_NUM": str(tracked_now(gang)),
        "JOB_ID": info.app_id,
        "APP_ID": info.app_id,
        "SESSION_ID": session,
        "ATTEMPT_NUMBER": session,
        "NUM_AM_RETRIES": session,
        "DISTRIBUTED_MODE": job.mode.value,
    }
    if info.has_spec:
        env[CLUSTER_SPEC] = shared_reference(CLUSTER_SPEC)
    if gang.is_chief(peer):
        env["IS_CHIEF"] = "true"
    if job.program.checkpoint_dir:
        env["TONY_CHECKPOINT_DIR"] = job.program.checkpoint_dir
    if job.program.tensorboard_log_dir:
        env["TONY_TENSORBOARD_LOG_DIR"] = job.program.tensorboard_log_dir
    if TENSORBOARD in peer.ports:
        env["TB_PORT"] = str(peer.ports[TENSORBOARD])
    if info.parameters is not None:
        env["MODEL_PARAMS"] = info.parameters
    return env


def tracked_now(gang: Gang) -> int:
    """TASK_NUM: how many tasks are waited for; of an elastic role those that are in the round."""
    if "tracked_now" in gang.memo:
        return int(gang.memo["tracked_now"])
    total = gang.job.tracked_tasks
    for role in gang.job.roles:
        there = sum(peer.role == role.name for peer in gang.peers) if role.is_elastic else 0
        if there:
            total += there - role.instances
    gang.memo["tracked_now"] = total
    return total


def task_environment(
    gang: Gang, peer: Peer, info: StartInfo, from_framework: Mapping[str, str]
) -> Dict[str, str]:
    """Every variable of one task, by the precedence above."""
    return {
        "PYTHONUNBUFFERED": "1",
        **from_framework,
        **info.tracker,
        **dict(gang.job.program.container_env),
        **dict(gang.job.program.shell_env),
        **identity_variables(gang, peer, info),
    }


def classpath(artifacts: Sequence[Artifact], role: str) -> str:
    """CLASSPATH of what ``--hdfs_classpath`` brought: jars, and folders with what they hold."""
    folder = shared_reference(WORKING_FOLDER)
    parts: List[str] = []
    for item in artifacts:
        if item.use is Use.CLASSPATH and item.wanted_by(role):
            path = f"{folder}/{item.name}"
            parts += [path] if item.kind is Kind.FILE else [path, path + "/*"]
    return ":".join(parts)


def unset_for(env: Mapping[str, str]) -> List[str]:
    """What the cluster's environment may hold and the program must not see."""
    return [name for name in UNSET if name not in env]


def clashes(job: Job, from_framework: Sequence[str]) -> List[str]:
    """Warn of each variable of the user's that the framework sets as well."""
    given = {name for name, _ in (*job.program.container_env, *job.program.shell_env)}
    out = []
    for name in sorted(given.intersection(from_framework)):
        out.append(f"{name} is the job's own value, not the one that {job.framework} needs")
    for name in sorted(given.intersection(IDENTITY)):
        out.append(f"{name} given by the job is not used: it differs from task to task")
    return out
