"""What a task's end means: for its role, its session, its job.

The first authenticated word on a program (task, session, and how often the task was started again
in it) is final. A container's exit decides only when no such word came; a later one is written down
and never decides again.
"""

from __future__ import annotations

from typing import Tuple

from tony_core.dataclass import replace
from tony_core.job.spec import Mode, Tracking
from tony_core.master.session.budgets import Fault
from tony_core.master.session.commands import AcknowledgeEnd, StopTask, Weight
from tony_core.master.session.events import (
    ContainerCompleted,
    ExecutorLost,
    ServiceFailed,
    TaskEnded,
    TaskReported,
)
from tony_core.master.session.records import (
    HOLDS_CONTAINER,
    TERMINAL,
    Failure,
    Hold,
    TaskRecord,
    TaskState,
)
from tony_core.master.session.state import Phase
from tony_core.master.session.task_restart import Alone
from tony_core.master.session.verdict import NODE_CAUSES, fault_of, how_it_ended
from tony_core.master.session.waits import Wait
from tony_core.schedulers.port import AppState, Cause

S = TaskState
EVALUATOR_GRACE_S = 600.0
_JUDGED = (Phase.ACTIVE, Phase.SETTLING)
#: Another container there would fare no better.
_NODES = (Cause.LOST, Cause.DISKS, Cause.LAUNCH)


class Judging(Alone):
    """The part of the machine that judges ends."""

    # what the other parts do
    def fail(self, failure: Failure) -> None:
        """A failure that fails the session."""
        raise NotImplementedError

    def begin_end(self, state: AppState, diagnostics: str, grace_s: float) -> None:
        """The job ends so."""
        raise NotImplementedError

    def check_cleared(self) -> None:
        """Whether the old session's programs are all gone."""
        raise NotImplementedError

    def check_ended(self) -> None:
        """Whether nothing is held any more."""
        raise NotImplementedError

    def check_groups(self) -> None:
        """Start the clock of each dependency whose group has ended."""
        raise NotImplementedError

    # ------------------------------------------------------------------ words of executors

    def on_ended(self, event: TaskEnded) -> None:
        """A program ended, in its executor's word."""
        self.emit(AcknowledgeEnd(event.container_id, event.session, event.restart))
        task = self.task_of(event.container_id)
        if task is None or task.state in TERMINAL:
            return
        if (event.session, event.restart) != task.number or task.name in self.returning:
            return
        task.exit_code = event.exit_code
        task.signal = event.signal
        task.cause = event.cause
        task.message = event.message
        task.stderr_tail = event.stderr_tail
        task.usage = event.usage
        record = self.open.get(event.container_id)
        asked = record is not None and record.hold in (Hold.CLEARING, Hold.STOPPING)
        ours = event.cause == "stopped" and (asked or self.phase not in _JUDGED)
        if event.exit_code == 0 and event.cause == "exited":
            self.move(task, S.SUCCEEDED)
        elif ours:
            self.move(task, S.KILLED, "ended by the master")
        else:
            outside = task.name in self.outside
            self.move(task, S.FAILED, how_it_ended(self.failure_of(task)), quiet=outside)
        if event.cause in NODE_CAUSES and record is not None:
            self.avoid(record.container.node)
            if record.hold is Hold.CLEARING:
                self.stop_container(record, 0.0, f"its node is avoided ({event.cause})")
        if self.phase not in _JUDGED:
            return
        if task.state is S.SUCCEEDED:
            self.task_succeeded(task)
        elif task.state is S.FAILED and task.name in self.outside:
            if record is not None:
                self.stop_container(record, 0.0, "its task could not be prepared")
            self.task_lost(task, self.failure_of(task))
        elif task.state is S.FAILED:
            self.task_failed(task, self.failure_of(task))
        else:
            self.after_end()

    def failure_of(self, task: TaskRecord) -> Failure:
        """The task's end as data for the verdict."""
        ran = self.now - task.started if task.started is not None else None
        return Failure(
            task=task.name,
            role=task.role.name,
            node=self.node_of(task),
            at=self.now,
            exit_code=task.exit_code if task.exit_code is not None else -1,
            signal=task.signal,
            cause=task.cause,
            container_cause=task.container_cause,
            message=task.message,
            stderr_tail=task.stderr_tail,
            ran_s=ran,
        )

    def on_reported(self, event: TaskReported) -> None:
        """The program says how far it is."""
        task = self.task_of(event.container_id)
        if task is None or event.session != task.session:
            return
        task.reported.update(event.metrics)
        if event.progress is not None:
            task.progress = event.progress
            self.progress_seen = True
        if event.step is not None:
            task.step = event.step
        if event.result and self.job.chief == (task.role.name, task.index):
            self.result = event.result
        # One measure only: progress where the program reports it, else the step.
        value = event.progress if self.progress_seen else event.step
        healed = value is not None and self.budgets.progressed(float(value))
        if event.saved is not None:
            if task.saved is None or event.saved > task.saved:
                task.saved, task.last_quick = event.saved, None
            healed = self.budgets.saved_checkpoint(event.saved) or healed
        if healed:
            self.tell(
                "budget-healed",
                "the program got further than any session before: its retries are whole again",
                Weight.DECISION,
                task,
            )
            self.journal()

    # ------------------------------------------------------------------ meaning

    def task_succeeded(self, task: TaskRecord) -> None:
        """A program ended well."""
        role = task.role
        if self.job.mode is Mode.FCFS and not task.is_sidecar:
            self.retire(task)
        if role.name in self.dependents and self.succeeded(role.name):
            for peer in self.inside(role.name):
                self.retire(peer)
            self.journal()
            if self.phase is Phase.ACTIVE:
                self.release_roles()
        if task.is_tracked and self.phase is Phase.ACTIVE and self.ending_soon():
            self.stop_growing()
        if role.name == "chief" and self.succeeded("chief") and self.phase is Phase.ACTIVE:
            self.chief_ended()
        self.after_end()

    def retire(self, task: TaskRecord) -> None:
        """It never runs again in this job: its container goes back at once."""
        self.done.add(task.name)
        record = self.container_of(task)
        if record is not None:
            self.stop_container(record, self.job.timeouts.kill_grace_s, f"{task.name} is done")

    def task_failed(self, task: TaskRecord, failure: Failure) -> None:
        """A program ended badly, or its container did under it."""
        if self.chief_done and task.role.name != "chief":
            self.after_end()  # the job has succeeded; this is only said
        elif self.comes_back(task, failure):
            pass  # nobody else hears of it
        elif task.is_sidecar and not task.role.stop_on_failure:
            pass  # ignored for the job
        elif self.is_fatal(task) or (task.role.is_elastic and fault_of(failure) is Fault.SYSTEM):
            self.fail(failure)
        else:
            self.after_end()

    def is_fatal(self, task: TaskRecord) -> bool:
        """Whether this task's failure fails the session."""
        role = task.role
        if role.stop_on_failure or role.tracking is Tracking.UNTRACKED:
            return True
        if role.name in self.untracked:
            return True
        if self.job.fail_on_worker_failure or role.name in self.dependents:
            return True
        if self.job.mode is Mode.GANG and role.name not in self.started:
            return True  # the gang cannot start without it
        if self.job.chief == (role.name, task.index) or role.name == "chief":
            return True
        tracked = self.tracked_roles()
        return self.count((S.SUCCEEDED, *OPEN), tracked) == 0

    def chief_ended(self) -> None:
        """A role named chief has succeeded: the others get a grace, then are ended."""
        if self.chief_done:
            return
        self.chief_done = True
        # Not retired: TensorBoard stands beside the chief until the job's end.
        self.done.update(task.name for task in self.by_role["chief"])
        self.journal()
        self.tell("chief-done", "the chief has succeeded: the job ends", Weight.DECISION)
        for name in sorted(self.returning):
            if not self.tasks[name].is_sidecar:
                self.end_by_master(self.tasks[name], "the chief has succeeded")
        grace = self.job.timeouts.chief_grace_s
        setting = f"tony.application.chief-grace={grace:g}s"
        long = max(grace, EVALUATOR_GRACE_S)
        reason = "the other tasks to end after the chief"
        self.waits.set(Wait(("chief-grace", "others"), self.now + grace, reason, setting))
        reason = "the evaluators to end after the chief"
        self.waits.set(Wait(("chief-grace", "evaluators"), self.now + long, reason, setting))

    def chief_grace_over(self, which: str) -> None:
        """End what still runs: it counts as ended by the master, not failed."""
        for name in self.tracked_roles():
            if (name == "evaluator") == (which == "evaluators"):
                for task in self.by_role[name]:
                    self.end_by_master(task, "the chief has succeeded")
        self.ask()  # without those that had no container yet
        self.after_end()

    def end_by_master(self, task: TaskRecord, reason: str) -> None:
        """End a task that need not go on."""
        if task.state in TERMINAL:
            return
        record = self.container_of(task)
        if task.state is S.RUNNING and record is not None and record.hold is Hold.LIVE:
            record.hold = Hold.CLEARING
            grace = self.job.timeouts.kill_grace_s
            self.emit(StopTask(record.id, task.session, grace, reason))
            self.watch_clearing(record.id, grace)
        self.move(task, S.KILLED, f"ended by the master: {reason}")

    def watch_clearing(self, container_id: str, grace_s: float) -> None:
        """An executor must end its program in time, or its container is ended."""
        reason = f"the program in container {container_id} to be ended"
        self.waits.set(Wait(("clear", container_id), self.now + grace_s + 5.0, reason))

    def after_end(self) -> None:
        """Whether the job is done; group dependencies."""
        if self.phase is Phase.SETTLING:
            self.settle_sooner()
            return
        if self.phase is not Phase.ACTIVE:
            return
        self.check_groups()
        tracked = self.tracked_roles()
        if self.count(OPEN, tracked):
            return
        # Whatever fails a session has taken the machine out of this phase already.
        lost = (S.FAILED, S.LOST)
        bad = [task.name for task in self.tasks.values() if task.is_tracked and task.state in lost]
        text = "all tracked tasks have ended"
        if bad and not self.chief_done:
            text += f" (failed, and ignored as the job asks: {', '.join(bad)})"
        self.begin_end(AppState.SUCCEEDED, text, self.job.timeouts.kill_grace_s)

    def settle_sooner(self) -> None:
        """Settling ends when no task is left whose word could still change the cause."""
        gang = [role.name for role in self.job.roles if role.tracking is not Tracking.SIDECAR]
        wait = self.waits.get("settle")
        if wait is not None and wait.until > self.now and not self.count(HOLDS_CONTAINER, gang):
            self.waits.set(Wait(wait.key, self.now, wait.reason))

    # ------------------------------------------------------------------ containers end

    def on_completed(self, event: ContainerCompleted) -> None:
        """The scheduler's word on a container's end."""
        record = self.open.pop(event.container_id, None)
        if record is None:
            return
        before, record.hold = record.hold, Hold.ENDED
        self.waits.cancel("stop", record.id)
        self.waits.cancel("clear", record.id)
        task = self.tasks[record.task] if record.task else None
        # One that an earlier master left may have called that one.
        uncalled = before is Hold.LAUNCHED and not record.inherited
        if event.cause in _NODES or (event.cause is Cause.EXITED and uncalled):
            self.avoid(record.container.node)
        if task is not None and task.container == record.id and task.state in HOLDS_CONTAINER:
            if before is Hold.STOPPING:
                outside = task.name in self.outside
                self.move(task, S.KILLED, "ended by the master", quiet=outside)
                if task.name in self.outside and self.phase is Phase.ACTIVE:
                    self.lost_outside(task)
                self.after_end()
            else:
                self.lose(task, event)
        elif task is not None and task.container == record.id and self.depends_on_container(task):
            self.lose(task, event)
        elif task is not None and task.state is S.FAILED and before is not Hold.STOPPING:
            self.add_word(task, event)
        if self.phase is Phase.CLEARING:
            self.check_cleared()
        elif self.phase is Phase.ENDING:
            self.check_ended()
        self.container_gone(record)

    def add_word(self, task: TaskRecord, event: ContainerCompleted) -> None:
        """The infrastructure's word on a task that has failed: it may be the cause."""
        if self.phase is not Phase.SETTLING or event.cause is Cause.EXITED:
            return
        if task.is_sidecar or task.container != event.container_id:
            return
        self.fail(
            replace(
                self.failure_of(task),
                container_cause=event.cause,
                message=event.diagnostics or task.message,
            )
        )

    def lose(self, task: TaskRecord, event: ContainerCompleted) -> None:
        """A container went away under its task, with no word of the executor."""
        task.exit_code = event.exit_code
        task.cause = event.cause.value
        task.container_cause = event.cause
        task.message = event.diagnostics
        failure = self.failure_of(task)
        state = S.FAILED if event.cause is Cause.MEMORY else S.LOST
        self.move(task, state, how_it_ended(failure), quiet=task.name in self.outside)
        if self.phase in _JUDGED:
            self.task_lost(task, failure)

    def task_lost(self, task: TaskRecord, failure: Failure) -> None:
        """Its container went away: one that stands outside the round is nobody's loss."""
        if task.name not in self.outside:
            self.task_failed(task, failure)
        elif self.phase is Phase.ACTIVE:
            text = f"{task.name}, which waits for the next round, lost its container"
            self.tell("elastic", f"{text}: {how_it_ended(failure)}", Weight.WARNING)
            self.lost_outside(task)

    def on_lost(self, event: ExecutorLost) -> None:
        """An executor is silent for longer than the heartbeats allow."""
        record = self.open.get(event.container_id)
        if record is None or record.hold is Hold.STOPPING:
            return
        task = self.task_of(record.id)
        self.stop_container(record, 0.0, event.reason)
        if task is None:
            return
        if task.state in HOLDS_CONTAINER or self.depends_on_container(task):
            self.lose_silently(task, "silent", event.reason)

    def lose_silently(self, task: TaskRecord, cause: str, message: str) -> None:
        """A task is given up by the master's own clock."""
        task.cause = cause
        task.message = message
        failure = self.failure_of(task)
        self.move(task, S.LOST, message, quiet=task.name in self.outside)
        if self.phase in _JUDGED:
            self.task_lost(task, failure)

    def on_service_failed(self, event: ServiceFailed) -> None:
        """The framework's service in the master ended the session (an MPI abort)."""
        if event.session != self.session or self.phase not in _JUDGED or self.chief_done:
            return
        task = self.tasks.get(event.task)
        failure = Failure(
            task=event.task or "the framework",
            role=task.role.name if task else "",
            node=self.node_of(task) if task else "",
            at=self.now,
            exit_code=event.exit_code,
            signal=0,
            cause="aborted",
            message=event.reason,
            ran_s=self.now - task.started if task and task.started is not None else None,
        )
        self.fail(failure)


OPEN: Tuple[TaskState, ...] = (S.PENDING, S.REQUESTED, *sorted(HOLDS_CONTAINER))
