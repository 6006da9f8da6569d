"""The applications that earlier attempts at the same job left, found by their tags.

Azkaban retries a job when its process has failed, and that may have been a SIGKILL, which ends no
application. ``tony_azkaban.retry`` in the job decides what happens to that application:

* ``end`` (the default): the retry ends it, and submits a new one.
* ``attach``: the retry watches it, and training goes on undisturbed. If it has succeeded by then,
  the attempt succeeds too.

With ``tony_azkaban.attach=APPLICATION`` (a parameter of the flow, say) the job that submitted this
application watches it: so a new execution continues what a restarted server left.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, Optional, Tuple

from tony_azkaban.execution import FLOW, JOB, Execution
from tony_azkaban.log import LAST_LINES, lines_wanted
from tony_core.client.errors import UsageError
from tony_core.client.kill import kill
from tony_core.client.workflow.tags import choose_predecessor
from tony_core.job.problems import did_you_mean
from tony_core.schedulers.port import AppStatus, NoSuchApplication, Scheduler

RETRY, ATTACH = "tony_azkaban.retry", "tony_azkaban.attach"
PREFIX = "tony_azkaban."
ENDS, ATTACHES = "end", "attach"
POLICIES = (ENDS, ATTACHES)
KNOWN = (RETRY, ATTACH, LAST_LINES)

Write = Callable[[str], None]


def check(props: Mapping[str, str]) -> None:
    """UsageError for a wrong property, which otherwise only a retry would find, or none."""
    for key in props:
        if key.startswith(PREFIX) and key not in KNOWN:
            near = did_you_mean(key, KNOWN)
            raise UsageError(f"unknown property {key}{near}")
    policy = _policy(props)
    if policy not in POLICIES:
        raise UsageError(f"{RETRY}={policy}: expected one of {', '.join(POLICIES)}")
    lines_wanted(props)


def _policy(props: Mapping[str, str]) -> str:
    return props.get(RETRY, "").strip() or ENDS


def may_exist(execution: Execution, props: Mapping[str, str]) -> bool:
    """Whether there can be any: a first attempt need not ask the scheduler."""
    return execution.attempt > 0 or bool(props.get(ATTACH, "").strip())


def settle(
    scheduler: Scheduler,
    execution: Execution,
    props: Mapping[str, str],
    log: Write,
    on_attach: Callable[[str], None],
) -> Optional[str]:
    """End the applications of earlier attempts; the id of the one that this attempt continues.

    ``on_attach`` is called as soon as that one is chosen: from then on a cancel has to end it.
    """
    named = props.get(ATTACH, "").strip()
    if named and execution.attempt == 0:
        return _attach(scheduler, execution, named, log, on_attach)
    found = find(scheduler, execution)
    if named:
        found += _adopted(scheduler, execution, named, found)
    reusable, stale = choose_predecessor(found, lambda status: _policy(props) == ATTACHES)
    if reusable is not None:
        on_attach(reusable.app_id)
    for status in stale:
        log(f"an earlier attempt left {status.app_id} ({status.state.value}): it is ended")
        end(scheduler, status.app_id, f"ended by attempt {execution.attempt} of its job")
    if reusable is not None:
        state = reusable.state.value
        log(f"goes on with {reusable.app_id} ({state}), which an earlier attempt left")
        return reusable.app_id
    return None


def find(scheduler: Scheduler, execution: Execution) -> List[AppStatus]:
    """The applications of the same job in the same execution, the newest first."""
    return [
        each
        for each in scheduler.list()
        if execution.is_same_job(each.tags) and _is_ours(scheduler, each)
    ]


def _is_ours(scheduler: Scheduler, status: AppStatus) -> bool:
    """Whether it runs as this attempt's user: any user can give an application these tags."""
    return scheduler.user in ("", status.user)


def end(scheduler: Scheduler, app_id: str, reason: str) -> None:
    """End an application and wait for its end; UsageError if it does not come in time."""
    if not kill(scheduler, app_id, reason).ended:
        raise UsageError(f"{app_id} does not end; tony kill {app_id} tries again")


def _adopted(
    scheduler: Scheduler, execution: Execution, app_id: str, found: List[AppStatus]
) -> List[AppStatus]:
    """The application that an earlier attempt watched by its id, with another execution's tags."""
    if any(each.app_id == app_id for each in found):
        return []
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        return []  # it has ended, and the scheduler has forgotten it
    ours = _is_ours(scheduler, status) and _is_of(status.tags, execution)
    return [status] if ours else []


def _attach(
    scheduler: Scheduler,
    execution: Execution,
    app_id: str,
    log: Write,
    on_attach: Callable[[str], None],
) -> Optional[str]:
    try:
        status = scheduler.status(app_id)
    except NoSuchApplication:
        raise UsageError(f"{ATTACH}={app_id}: there is no such application") from None
    if not _is_ours(scheduler, status) or not _is_of(status.tags, execution):
        log(f"{app_id} is not an application of this job, which is submitted again ({ATTACH})")
        return None
    on_attach(app_id)
    log(f"goes on with {app_id} ({status.state.value})")
    return app_id


def _is_of(tags: Tuple[str, ...], execution: Execution) -> bool:
    mine = execution.tags()
    wanted = {mine[name].lower() for name in (JOB, FLOW) if name in mine}
    return wanted <= {each.lower() for each in tags}
