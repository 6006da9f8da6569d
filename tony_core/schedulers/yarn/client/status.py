"""The status of an application for the port: state, progress, and YARN's reasons in plain words.

While an application waits for its master's container, YARN's diagnostics hold the reason with
raw resource figures.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

from tony_core.hadoop.yarn.records import MEMORY, VCORES, AppReport
from tony_core.schedulers.port import AppState, AppStatus
from tony_core.schedulers.yarn import refusals, resources
from tony_core.schedulers.yarn.application_state import TIMED_OUT, start_failure, state_of
from tony_core.schedulers.yarn.diagnostics import explain_master_failure

_DEFAULT_PARTITION = "<DEFAULT_PARTITION>"


def status_of(report: AppReport, user: str = "this user") -> AppStatus:
    """An application's status, from YARN's report to this user."""
    state = state_of(report)
    running = state is AppState.RUNNING
    return AppStatus(
        app_id=str(report.id),
        name=report.name,
        user=report.user,
        queue=report.queue,
        state=state,
        type=report.type,
        tags=report.tags,
        submitted=report.submitted,
        started=report.launched or None,
        finished=(report.finished or None) if state.ended else None,
        progress=_progress(state, report.progress),
        attempt=max(0, report.attempt.number) if report.attempt else 0,
        page_url=report.tracking_url or None if running else None,
        tracking_url=report.tracking_url or None,
        diagnostics=_explain(state, report),
        view_refusal="" if report.may_view else refusals.explain_no_view(user, str(report.id)),
    )


def _progress(state: AppState, reported: float) -> float:
    """Progress from 0 to 1; YARN reports 100 % for every application that has ended."""
    if state is AppState.SUCCEEDED:
        return 1.0
    return 0.0 if state.ended and reported >= 1.0 else min(1.0, max(0.0, reported))


def _explain(state: AppState, report: AppReport) -> str:
    text = report.diagnostics
    if state in (AppState.SUBMITTED, AppState.ACCEPTED):
        return explain_pending(text, report.queue) or text
    if state is AppState.TIMED_OUT and text.startswith(TIMED_OUT):
        return text[len(TIMED_OUT) :]
    if state is AppState.RUNNING and _split_timestamp(text)[1].startswith("Application is "):
        return ""  # from before it ran
    cannot_start = start_failure(report)
    if cannot_start is not None:
        return cannot_start
    return explain_master_failure(text) if state is AppState.FAILED else text


# ---------------------------------------------------------------------- why it waits

_DETAIL = re.compile(r"([A-Z][A-Za-z'()% ]*?)\s*=\s*(<[^<>]*>|[^;]*?)\s*;")
_AMOUNT = re.compile(r"([A-Za-z0-9_./-]+):\s*(-?\d+)([A-Za-z]*)")
_NAMES = {"memory": MEMORY, "vCores": VCORES}


def explain_pending(text: str, queue: str) -> Optional[str]:
    """Why an application's master has no container yet; None if YARN gives no known reason."""
    _, reason = _split_timestamp(text)
    details = dict(_DETAIL.findall(reason + ";"))
    wants = _format(details.get("AM Resource Request", ""))
    wanted = f"this one wants {wants}" if wants else "this one has to wait"
    if "Queue's AM resource limit exceeded" in reason:
        most = _format(details.get("Queue Resource Limit for AM", ""))
        held = _format(details.get("Queue AM Resource Usage", ""))
        return (
            f"waits: the masters of the queue {queue} may hold {most or 'no more'} together,"
            f" they hold {held or 'nothing'}, and {wanted}"
        )
    if "User's AM resource limit exceeded" in reason:
        most = _format(
            details.get("User AM Resource Limit of the queue")
            or details.get("User AM Resource Limit of the queue partition")
            or ""
        )
        held = _format(details.get("Queue AM Resource Usage", ""))
        return (
            f"waits: one user's masters may hold {most or 'no more'} in the queue {queue},"
            f" all masters there hold {held or 'nothing'}, and {wanted}"
        )
    if "waiting for resources to be assigned for AM" in reason:
        return f"waits for room in the queue {queue}{_room(details)}"
    if "not yet activated" in reason:
        why = reason.partition("not yet activated.")[2].partition("Details :")[0].strip(" .")
        return f"waits in the queue {queue}{': ' + why if why else ''}"
    if reason.startswith("AM container is launched"):
        return "its master's container is being started"
    return None


def _room(details: Dict[str, str]) -> str:
    words: List[str] = []
    partition = details.get("AM Partition", "")
    if partition and partition != _DEFAULT_PARTITION:
        words.append(f"on the nodes labelled {partition}")
    used, most = (details.get(f"Queue's Absolute {name} capacity", "") for name in ("used", "max"))
    if used and most:
        words.append(f"it holds {used} of the {most} of the cluster that it may have")
    limit = _format(details.get("Queue's capacity (absolute resource)", ""))
    if limit:
        words.append(f"its own share is {limit}")
    there = _format(details.get("Partition Resource", ""))
    if there:
        words.append(f"the cluster has {there}")
    return f": {', '.join(words)}" if words else ""


def _format(text: str) -> str:
    """``<memory:512, vCores:1>`` as ``512 MB of memory, 1 vcore``."""
    found: Dict[str, int] = {}
    for name, number, _unit in _AMOUNT.findall(text):
        found[_NAMES.get(name, name)] = int(number)
    return resources.format_amounts(found) if found else ""


def _split_timestamp(text: str) -> Tuple[str, str]:
    """Time and text of ``[Sat Nov 21 13:00:00 +0000 2026] text``."""
    if text.startswith("["):
        stamp, closed, rest = text[1:].partition("]")
        if closed:
            return stamp, rest.strip()
    return "", text.strip()
