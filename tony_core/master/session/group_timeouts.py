"""``tony.application.dependency.<role>.timeout.after.<group>``: a clock that a group's end starts.

How long a role (an evaluator) may go on once every task of a group (the workers) has ended. At the
end of that time its tasks have failed; with ``.ignored`` the session goes on as if the role were
untracked: its tasks run until the others end, and a failure of theirs fails the session.
"""

from __future__ import annotations

from tony_core.master.session.commands import Weight
from tony_core.master.session.records import TERMINAL, TaskState
from tony_core.master.session.task_ends import OPEN, Judging
from tony_core.master.session.waits import Wait

S = TaskState


class Groups(Judging):
    """The part of the machine that knows what depends on groups."""

    def check_groups(self) -> None:
        """Start the clock of each dependency whose group has ended."""
        for number, item in enumerate(self.job.group_dependencies):
            key = ("group", str(number))
            roles = dict(self.job.groups).get(item.group, ())
            if key in self.waits or item.role not in self.by_role or not roles:
                continue
            if item.ignored and item.role in self.untracked:
                continue
            if self.count(OPEN, roles) or not self.count(OPEN, (item.role,)):
                continue
            name = f"tony.application.dependency.{item.role}.timeout.after.{item.group}"
            reason = f"{item.role} to end after group {item.group}"
            setting = f"{name}={item.timeout_s:g}s"
            self.waits.set(Wait(key, self.now + item.timeout_s, reason, setting))

    def group_timeout(self, number: int, wait: Wait) -> None:
        """The role did not end in time after its group."""
        item = self.job.group_dependencies[number]
        if item.ignored:
            self.untrack(item.role, wait.setting)
            return
        for task in self.inside(item.role):
            if task.state in TERMINAL:
                continue
            if self.chief_done:
                self.end_by_master(task, f"{wait.setting} passed; ignored")
                continue
            task.cause = "dependency-timeout"
            task.message = f"waited for {wait.reason}; {wait.setting} passed"
            failure = self.failure_of(task)
            self.move(task, S.FAILED, task.message)
            self.fail(failure)
        self.ask()  # without those that had no container yet
        self.after_end()

    def untrack(self, role: str, setting: str) -> None:
        """Wait for this role no longer in this session."""
        self.untracked.add(role)
        self.journal()
        text = f"{role} is no longer waited for ({setting} passed); a failure of it still counts"
        self.tell("untracked", text, Weight.DECISION)
        self.after_end()
