"""What an earlier attempt at the same job left running, found by its tags.

Azkaban tries a job again when its process has ended badly, and that may have been a SIGKILL,
which ends no application. ``tony_azkaban.retry`` in the job says what becomes of it:

* ``end`` (the default): it is ended, and the retry begins anew.
* ``attach``: the retry watches it instead, and training is not disturbed. One that has
  succeeded meanwhile counts as this attempt's success.

``tony_azkaban.attach=APPLICATION`` (a parameter of the flow, say) has the job that it was
started by watch that one: so a new execution adopts what a restarted server left behind.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, Optional, Tuple

from tony_azkaban.execution import FLOW, JOB, Execution
from tony_azkaban.log import LAST_LINES, lines_wanted
from tony_core.client.errors import UsageError
from tony_core.client.kill import kill
from tony_core.job.problems import did_you_mean
from tony_core.schedulers.port import AppState, AppStatus, NoSuchApplication, Scheduler

RETRY, ATTACH = "tony_azkaban.retry", "tony_azkaban.attach"
PREFIX = "tony_azkaban."
END, TAKE = "end", "attach"
WORDS = (END, TAKE)
KNOWN = (RETRY, ATTACH, LAST_LINES)

Say = Callable[[str], None]


def check(props: Mapping[str, str]) -> None:
    """UsageError for a word that would only be missed at the retry, or never."""
    for key in props:
        if key.startswith(PREFIX) and key not in KNOWN:
            near = did_you_mean(key, KNOWN)
            raise UsageError(f"{key} is nothing that the job type knows{near}")
    way = _way(props)
    if way not in WORDS:
        raise UsageError(f"{RETRY}={way} is none of {', '.join(WORDS)}")
    lines_wanted(props)


def _way(props: Mapping[str, str]) -> str:
    return props.get(RETRY, "").strip() or END


def may_be(execution: Execution, props: Mapping[str, str]) -> bool:
    """Whether there can be any; a first attempt asks nobody."""
    return execution.attempt > 0 or bool(props.get(ATTACH, "").strip())


def settle(
    scheduler: Scheduler,
    execution: Execution,
    props: Mapping[str, str],
    say: Say,
    takes: Callable[[str], None],
) -> Optional[str]:
    """End what is left, or the id of the application that this attempt goes on with.

    ``takes`` hears of that one as soon as it is chosen: from then on a cancel is for it.
    """
    named = props.get(ATTACH, "").strip()
    if named and execution.attempt == 0:
        return _named(scheduler, execution, named, say, takes)
    left = find(scheduler, execution)
    if named:
        left += _adopted(scheduler, execution, named, left)
    taken = _taken(left) if _way(props) == TAKE else None
    if taken is not None:
        takes(taken.app_id)
    for status in left:
        if status is not taken and not status.state.ended:
            say(f"an earlier attempt left {status.app_id} ({status.state.value}): it is ended")
            end(scheduler, status.app_id, f"ended by attempt {execution.attempt} of its job")
    if taken is not None:
        say(f"goes on with {taken.app_id} ({taken.state.value}), which an earlier attempt left")
        return taken.app_id
    return None


def find(scheduler: Scheduler, execution: Execution) -> List[AppStatus]:
    """Every application of the same job in the same execution, the newest first."""
    return [
        each
        for each in scheduler.list()
        if execution.is_same_job(each.tags) and _is_ours(scheduler, each)
    ]


def _is_ours(scheduler: Scheduler, status: AppStatus) -> bool:
    """Whether it runs as the user that we are: anybody can give an application our tags."""
    return scheduler.user in ("", status.user)


def end(scheduler: Scheduler, app_id: str, reason: str) -> None:
    """Until it is over; one that does not end in time is said by the error."""
    if not kill(scheduler, app_id, reason).ended:
        raise UsageError(f"{app_id} does not end; tony kill {app_id} tries again")


def _taken(left: List[AppStatus]) -> Optional[AppStatus]:
    running = [each for each in left if not each.state.ended]
    done = [each for each in left if each.state is AppState.SUCCEEDED]
    return next(iter(running or done), None)


def _adopted(
    scheduler: Scheduler, execution: Execution, app_id: str, left: List[AppStatus]
) -> List[AppStatus]:
    """What an attempt before this one watched by name; it has another execution's tags."""
    if any(each.app_id == app_id for each in left):
        return []
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        return []  # it has ended, and is forgotten
    ours = _is_ours(scheduler, status) and _is_of(status.tags, execution)
    return [status] if ours else []


def _named(
    scheduler: Scheduler,
    execution: Execution,
    app_id: str,
    say: Say,
    takes: Callable[[str], None],
) -> Optional[str]:
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        raise UsageError(f"{ATTACH}={app_id}: there is no such application") from None
    if not _is_ours(scheduler, status) or not _is_of(status.tags, execution):
        say(f"{app_id} is no application of this job: it is submitted anew ({ATTACH})")
        return None
    takes(app_id)
    say(f"goes on with {app_id} ({status.state.value})")
    return app_id


def _is_of(tags: Tuple[str, ...], execution: Execution) -> bool:
    mine = execution.tags()
    wanted = {mine[name].lower() for name in (JOB, FLOW) if name in mine}
    return wanted <= {each.lower() for each in tags}
