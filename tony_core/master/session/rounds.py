"""Rounds of elastic roles: growing by those who came, going on with those who are left.

The theory is in :mod:`tony_core.master.session.elastic`. A round is begun as a restart is, warm
in any case: the programs are ended, and when nothing of them is left the next session begins. No
budget pays, nothing backs off, and what tasks have reported of their progress stays.
"""

from __future__ import annotations

from typing import Dict, List

from tony_core.master.session.budgets import Fault
from tony_core.master.session.commands import Weight
from tony_core.master.session.elastic import elastic_roles
from tony_core.master.session.records import Failure, Hold, TaskRecord, TaskState
from tony_core.master.session.recovery import RESTART_GRACE_S, Clearing
from tony_core.master.session.state import Phase
from tony_core.master.session.verdict import NODE_CAUSES, describe, fault_of

S = TaskState


class Rounds(Clearing):
    """The part of the machine that begins rounds."""

    # ------------------------------------------------------------------ growing

    def grow(self) -> None:
        """Those that came have been waited for: take them in."""
        if self.phase is not Phase.ACTIVE or self.ending_soon():
            return
        came = self.newcomers()
        if not came:
            return
        sizes: Dict[str, List[int]] = {}
        for name in elastic_roles(self.job):
            now = len(self.inside(name))
            new = sum(task.role.name == name for task in came)
            if name in self.started and new:
                sizes[name] = [now, now + new]
        if not sizes:
            return
        text = ", ".join(f"{name} grows from {a} to {b}" for name, (a, b) in sizes.items())
        grace = self.job.timeouts.kill_grace_s
        self.begin_round(f"{text}: a new round", grace, Weight.DECISION)

    # ------------------------------------------------------------------ shrinking

    def may_shrink(self, cause: Failure) -> bool:
        """See the theory: only elastic roles lost something, and each keeps its minimum."""
        if fault_of(cause) is not Fault.SYSTEM or self.chief_done:
            return False
        roles = elastic_roles(self.job)
        gone = [failure for failure in self.failures if fault_of(failure) is Fault.SYSTEM]
        if not roles or any(failure.role not in roles for failure in gone):
            return False
        if self.ending_soon():
            return False
        # A program that ended for the infrastructure's reasons in a container that lives on
        # (a port was taken) is restarted by a budget: by no budget it might be so for ever.
        if not any(self.is_gone(self.tasks[failure.task]) for failure in gone):
            return False
        return all(self.left(name) >= self.job.role(name).least for name in roles)

    def is_gone(self, task: TaskRecord) -> bool:
        """Whether its container cannot serve a next session."""
        record = self.container_of(task)
        if record is None or record.hold is Hold.STOPPING:
            return True
        return task.state is S.FAILED and task.cause in NODE_CAUSES

    def left(self, role: str) -> int:
        """How many tasks of a role can go on."""
        if role not in self.released:
            return self.job.role(role).instances
        return sum(not self.is_gone(task) for task in self.by_role[role])

    def shrink(self, cause: Failure) -> None:
        """Go on with those that are left, and ask for others meanwhile."""
        for name in elastic_roles(self.job):
            before = self.inside(name)
            gone = [task for task in before if self.is_gone(task)]
            for _ in gone[:1]:
                self.lost_more(name)
            if gone:
                lost = ", ".join(f"{task.name} lost on {self.node_of(task)}" for task in gone)
                text = f"goes on with {self.left(name)} of {len(before)} {name}: {lost}"
                self.tell("elastic", f"{text} ({describe(cause)})", Weight.WARNING, role=name)
        self.begin_round("a new round without what was lost", RESTART_GRACE_S, Weight.DECISION)

    # ------------------------------------------------------------------ both

    def begin_round(self, text: str, grace_s: float, weight: Weight) -> None:
        """End the programs; the next session is a round."""
        self.regrouping = True
        self.tell("round", f"{text} (session {self.session + 1})", weight)
        self.journal()
        self.clear_away("a new round begins", grace_s, False)
