"""MXNet's distributed key-value store (ps-lite): DMLC_*.

Three roles, by the names that MXNet gives them: one ``scheduler`` where all meet, ``server``,
which holds the weights, ``worker``, which trains. Scheduler and servers run ``import mxnet`` and
serve until the last worker has signed off; when a worker dies without that, for ever. So by
default the job does not wait for them, and their failure is fatal
(``tony.application.untracked.jobtypes``).

The scheduler listens at its task's port on all interfaces (DMLC_USE_KUBERNETES: ps-lite cannot
listen at an address that is a name). Servers and workers listen at theirs (PORT), else, where it is
taken, at another. All bind with SO_REUSEADDR, so they can while we hold it.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional

from tony_core.frameworks.base import (
    Framework,
    FrameworkProblem,
    Gang,
    Peer,
    TaskRestart,
    refuse_fcfs,
    refuse_several,
)
from tony_core.job.spec import Job, Role, Tracking

_ROLES = ("scheduler", "server", "worker")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+", re.ASCII)


class MxNet(Framework):
    """Scheduler, servers and workers; other roles run beside them."""

    name = "mxnet"

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """Refuse jobs in which some of them would wait for ever."""
        return [
            *refuse_fcfs(job, "MXNet", "and the scheduler's address"),
            *_missing(job),
            *refuse_several(job, "scheduler", "MXNet has one"),
            *_ignored(job),
            *_staged(job),
        ]

    def task_restart(self, job: Job, role: Role) -> TaskRestart:
        """Refuse it for scheduler, servers and workers: they count each other at the start."""
        if role.name in _ROLES and role.tracking is not Tracking.SIDECAR:
            why_not = "MXNet's scheduler, servers and workers cannot go on with a restarted one"
            return TaskRestart(why_not)
        return TaskRestart()

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """What ``mxnet.kv.create("dist_sync")`` reads, and ``import mxnet`` of those who serve."""
        if peer.role not in _ROLES:
            return {}
        known: Optional[Dict[str, str]] = gang.memo.get("mxnet")
        if known is None:
            known = gang.memo["mxnet"] = _shared(gang)
        env = {**known, "DMLC_ROLE": peer.role}
        if peer.role == "scheduler":
            return {**env, "DMLC_USE_KUBERNETES": "1"}
        env["PORT"] = str(peer.ports["main"])
        if _ADDRESS.fullmatch(peer.host):
            env["DMLC_NODE_HOST"] = peer.host
        return env


def _shared(gang: Gang) -> Dict[str, str]:
    """The variables that are the same for all."""
    members = [peer for peer in gang.peers if peer.role in _ROLES]
    (root,) = (peer for peer in members if peer.role == "scheduler")
    env = {
        "DMLC_PS_ROOT_URI": root.host,
        "DMLC_PS_ROOT_PORT": str(root.ports["main"]),
        "DMLC_NUM_SERVER": str(sum(peer.role == "server" for peer in members)),
        "DMLC_NUM_WORKER": str(sum(peer.role == "worker" for peer in members)),
        "DMLC_LOCAL": "0",
    }
    # Without it ps-lite takes the first interface that is not the loopback's.
    if len({peer.host for peer in members}) == 1:
        env["DMLC_INTERFACE"] = "lo"
    return env


def _missing(job: Job) -> List[FrameworkProblem]:
    present = {role.name for role in job.roles if role.instances}
    missing = [name for name in _ROLES if name not in present]
    if not missing:
        return []
    what = " and no ".join(missing)
    hint = ": what is called ps elsewhere is called server" if "ps" in present else ""
    if present == {"worker"}:
        hint = "; for a program that needs no others, tony.application.framework=standalone"
    return [
        FrameworkProblem(
            f"MXNet's processes meet at one scheduler, and servers hold the weights of workers:"
            f" there is no {what}{hint}",
            f"tony.{missing[0]}.instances",
        )
    ]


def _ignored(job: Job) -> List[FrameworkProblem]:
    """Refuse to ignore the end of one of the three: the others would wait for ever."""
    problems = []
    for role in job.roles:
        if role.name in _ROLES and role.tracking is Tracking.SIDECAR:
            text = f"the others cannot go on without {role.name}: it cannot be a sidecar"
            problems.append(FrameworkProblem(text, "tony.application.sidecar.jobtypes"))
        elif role.name == "worker" and role.tracking is not Tracking.TRACKED:
            text = "the workers' end is the job's: they must be tracked"
            problems.append(FrameworkProblem(text, "tony.application.untracked.jobtypes"))
    return problems


def _staged(job: Job) -> List[FrameworkProblem]:
    """Refuse one of the three that waits for another's end."""
    for role in job.roles:
        for other in role.depends_on:
            if role.name in _ROLES and other in _ROLES:
                text = f"{role.name} waits for {other} to end, but MXNet needs both together"
                return [FrameworkProblem(text, f"tony.{role.name}.depends-on")]
    return []
