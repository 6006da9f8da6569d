"""When a session has done its work: all tracked tasks have ended, or those that the others serve.

Three things end a job well, or bring its end near: every tracked task has ended; a role named
``chief`` has succeeded, and the others have had their grace; or
``tony.application.dependency.<role>.timeout.after.<group>``, the time that a role (an evaluator)
has once every task of a group (the workers) has ended. At the end of that time its tasks have
failed; with ``.ignored`` the session goes on as if the role were untracked: its tasks run until the
others end, and a failure of theirs fails the session.
"""

from __future__ import annotations

import json

from tony_core.exit_causes import ExitCause
from tony_core.history.layout import StoryKind
from tony_core.master.session.commands import Level
from tony_core.master.session.deadlines import EVALUATOR_GRACE_S, Deadline, PendingDeadline
from tony_core.master.session.records import OPEN, TERMINAL, Phase, TaskState
from tony_core.master.session.shutdown import end_task
from tony_core.master.session.state import State
from tony_core.master.session.task_ends import fail_session, failure_of, shorten_settling
from tony_core.schedulers.port import AppState

S = TaskState
LONGEST_QUOTE = 200  # characters of a result in the job's message

# ------------------------------------------------------------------ all tracked tasks


def end_if_complete(state: State) -> None:
    """End the job once its tracked tasks have; start the deadlines of those that follow them."""
    state.unhandled.completion_changed = False
    if state.phase is Phase.SETTLING:
        shorten_settling(state)
        return
    _watch_groups(state)
    if state.count(OPEN, state.tracked_roles()):
        return
    # A failure of the session would have ended this phase already.
    lost = (S.FAILED, S.LOST)
    bad = [task.name for task in state.tasks.values() if task.is_tracked and task.state in lost]
    text = "all tracked tasks have ended"
    if bad and not state.chief_done:
        text += f" (failed, and ignored as the job asks: {', '.join(bad)})"
    text += _quoted(state.result)
    state.request_end(AppState.SUCCEEDED, text, state.job.timeouts.kill_grace_s)


def _quoted(result: str) -> str:
    """A result that is a short text, for the job's message: why it ended, what came out."""
    if not result.startswith('"') or len(result) > 6 * LONGEST_QUOTE + 2:
        return ""  # another type; an escape has six characters
    value = str(json.loads(result))
    is_short = value.isprintable() and 0 < len(value) <= LONGEST_QUOTE
    return f"; result: {value}" if is_short else ""


# ------------------------------------------------------------------ the chief


def begin_chief_grace(state: State) -> None:
    """Give the other tasks their grace: the chief has succeeded."""
    state.chief_succeeded = False
    if state.chief_done:
        return
    state.chief_done = True
    # Not retired: TensorBoard stands beside the chief until the job's end.
    state.finished_tasks.update(task.name for task in state.by_role["chief"])
    state.add_line(StoryKind.CHIEF_DONE, "the chief has succeeded: the job ends", Level.DECISION)
    state.restarts.cancelled = True
    grace = state.job.timeouts.chief_grace_s
    state.set_deadline(Deadline.CHIEF_GRACE, grace, "others")
    long = max(grace, EVALUATOR_GRACE_S)
    state.set_deadline(Deadline.CHIEF_GRACE, grace, "evaluators", until=state.now + long)


def cancel_task_restarts(state: State) -> None:
    """End the tasks that were to be started again: the chief has succeeded.

    A step of its own: a next master that finds them in the journal has to end them as well.
    """
    state.restarts.cancelled = False
    for name in sorted(state.restarts.pending):
        if not state.tasks[name].is_sidecar:
            end_task(state, state.tasks[name], "the chief has succeeded")


def end_after_chief(state: State, pending: PendingDeadline) -> None:
    """End what still runs: it counts as ended by the master, not failed."""
    for name in state.tracked_roles():
        if (name == "evaluator") == (pending.name == "evaluators"):
            for task in state.by_role[name]:
                end_task(state, task, "the chief has succeeded")
    state.unhandled.completion_changed = True


# ------------------------------------------------------------------ groups


def _watch_groups(state: State) -> None:
    """Start the deadline of each dependency whose group has ended."""
    for number, item in enumerate(state.job.group_dependencies):
        roles = dict(state.job.groups).get(item.group, ())
        if (Deadline.GROUP, str(number)) in state.deadlines or not roles:
            continue
        if item.role not in state.by_role or (
            item.ignored and item.role in state.no_longer_awaited
        ):
            continue
        if state.count(OPEN, roles) or not state.count(OPEN, (item.role,)):
            continue
        limit, role, group = item.timeout_s, item.role, item.group
        state.set_deadline(Deadline.GROUP, limit, str(number), role=role, group=group)


def time_out_dependency(state: State, pending: PendingDeadline) -> None:
    """Fail a role that did not end in time after its group, or no longer wait for it."""
    item = state.job.group_dependencies[int(pending.name)]
    state.unhandled.completion_changed = True
    if item.ignored:
        state.no_longer_awaited.add(item.role)
        text = f"{item.role} is no longer waited for ({pending.setting} passed)"
        state.add_line(StoryKind.UNTRACKED, f"{text}; a failure of it still counts", Level.DECISION)
        return
    for task in state.in_round(item.role):
        if task.state in TERMINAL:
            continue
        if state.chief_done:
            end_task(state, task, f"{pending.setting} passed; ignored")
            continue
        task.cause = ExitCause.DEPENDENCY_TIMEOUT
        task.message = f"waited for {pending.reason}; {pending.setting} passed"
        failure = failure_of(state, task)
        state.move(task, S.FAILED, task.message)
        fail_session(state, failure)
