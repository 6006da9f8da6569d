"""TensorFlow: TF_CONFIG.

Its servers bind their port with SO_REUSEADDR, so they can do it while we hold it
(we never listen); nothing is released before the program starts.
"""

from __future__ import annotations

import json
from typing import Dict, List, Optional

from tony_core.frameworks.base import (
    Framework,
    FrameworkProblem,
    Gang,
    Peer,
    TaskRestart,
    refuse_several,
)
from tony_core.job.spec import Job, Mode, Role, Tracking

_CLUSTER = "tf_cluster"
_TRAINING = ("chief", "master", "worker")

# Linux takes no environment value of 128 KiB, and TensorFlow reads its cluster from nothing
# else. An address in JSON is at least 16 characters, so beyond this it can never fit.
_MOST_TASKS = 128 * 1024 // 16


class TensorFlow(Framework):
    """Every task gets the whole cluster; the evaluator is in its own copy only."""

    name = "tensorflow"
    needs_full_spec = True

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """Refuse what TensorFlow itself would refuse, or would hang on."""
        problems: List[FrameworkProblem] = []
        for role in ("chief", "evaluator"):
            problems += refuse_several(job, role, "TensorFlow allows one")
        present = {role.name for role in job.roles if role.instances}
        if "ps" in present and not present & set(_TRAINING):
            problems.append(
                FrameworkProblem(
                    "parameter servers without a chief or a worker to serve",
                    "tony.worker.instances",
                )
            )
        in_cluster = sum(role.instances for role in job.roles if _in_cluster(role))
        if in_cluster > _MOST_TASKS:
            problems.append(
                FrameworkProblem(
                    f"{in_cluster} tasks do not fit into TF_CONFIG, which is one environment"
                    f" value of at most 128 KiB; TensorFlow can have {_MOST_TASKS} at most",
                    "tony.worker.instances",
                )
            )
        return problems

    def task_restart(self, job: Job, role: Role) -> TaskRestart:
        """Allow it in place between workers and parameter servers; outside the cluster anywhere."""
        members = [
            item
            for item in job.roles
            # A role of another stage is not a peer.
            if _in_cluster(item)
            and item.name not in role.depends_on
            and role.name not in item.depends_on
        ]
        if job.mode is Mode.FCFS or role not in members:
            return TaskRestart()
        if sum(item.instances for item in members) == 1:
            return TaskRestart()
        if role.name in _TRAINING and not any(item.name == "ps" for item in members):
            return TaskRestart(
                "without a ps TensorFlow's workers train together and cannot go on with a restarted"
                " one (for programs without peers: tony.application.distributed-mode=FCFS)"
            )
        return TaskRestart(address_bound=True)

    def shared(self, gang: Gang) -> Dict[str, str]:
        """The cluster's roles, without the braces: the evaluator adds itself."""
        if not _has_cluster(gang):
            return {}
        cluster: Dict[str, List[str]] = {}
        starting = set(gang.starting)
        for peer in gang.peers:
            # A role of an earlier stage has ended: TensorFlow would wait for it for ever.
            if _in_cluster(gang.role(peer)) and (not starting or peer.name in starting):
                cluster.setdefault(peer.role, []).append(peer.address())
        return {
            _CLUSTER: ",".join(
                f"{json.dumps(role)}:{json.dumps(addresses, separators=(',', ':'))}"
                for role, addresses in cluster.items()
            )
        }

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """TF_CONFIG, but for sidecars."""
        role = gang.role(peer)
        if not _has_cluster(gang) or not (_in_cluster(role) or _evaluates(role)):
            return {}
        from tony_core.protocol.messages import shared_reference  # not for the client, which checks

        cluster = shared_reference(_CLUSTER)
        if _evaluates(role):
            cluster += f',"evaluator":[{json.dumps(peer.address())}]'
        task = json.dumps({"type": peer.role, "index": peer.index}, separators=(",", ":"))
        return {"TF_CONFIG": f'{{"cluster":{{{cluster}}},"task":{task}}}'}


def _evaluates(role: Role) -> bool:
    return role.name == "evaluator" and role.tracking is not Tracking.SIDECAR


def _in_cluster(role: Role) -> bool:
    if role.tracking is Tracking.SIDECAR:
        return False
    return role.name not in ("evaluator", "tensorboard")


def _has_cluster(gang: Gang) -> bool:
    """Whether there is anything to describe.

    FCFS tasks start before their peers are known. One single task whose role has no
    meaning to TensorFlow is an ordinary program.
    """
    if gang.job.mode is Mode.FCFS:
        return False
    known: Optional[bool] = gang.memo.get("tf_has_cluster")
    if known is None:
        members = [peer for peer in gang.peers if _in_cluster(gang.role(peer))]
        known = len(members) > 1 or any(peer.role in _TRAINING for peer in members)
        gang.memo["tf_has_cluster"] = known
    return known
