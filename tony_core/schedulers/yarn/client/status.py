"""YARN's words on an application, mapped once to ours.

YARN has three ways to say how an application ended (its state, the final status that the master
gave, and a text); these become one :class:`AppState`. Of an application that waits for its
master's container, YARN's text says why, with numbers nobody should have to decipher.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

from tony_core.hadoop.yarn.records import MEMORY, VCORES, AppReport
from tony_core.schedulers.port import AppState, AppStatus
from tony_core.schedulers.yarn import amounts
from tony_core.schedulers.yarn.client.diagnostics import plain

TYPE, TAG = "TONY", "tony"
"""An application of ours has this type; one to which the job gives another has this tag."""

TIMED_OUT = "timed out: "
"""How a master's last words begin when the job's time was over: YARN has no such status."""

CANNOT_START = "tony cannot start: "
"""How the reason of a kill begins by which a master ends what no attempt can do: a failure."""

_STATES: Dict[str, AppState] = {
    "NEW": AppState.SUBMITTED,
    "NEW_SAVING": AppState.SUBMITTED,
    "SUBMITTED": AppState.SUBMITTED,
    "ACCEPTED": AppState.ACCEPTED,
    "RUNNING": AppState.RUNNING,
    "FAILED": AppState.FAILED,
    "KILLED": AppState.KILLED,
}
_FINAL: Dict[str, AppState] = {
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
    "KILLED": AppState.KILLED,
    "ENDED": AppState.SUCCEEDED,
}
"""By what the master said when it took its leave (the state is FINISHED then)."""

_LIFETIME = re.compile(r"exceeded (?:the|its) lifetime", re.IGNORECASE)
_CANNOT_START = re.compile(f" with diagnostic message: {CANNOT_START}(.*)", re.DOTALL)
_DEFAULT_PARTITION = "<DEFAULT_PARTITION>"


def final_status(state: AppState) -> str:
    """What a master tells YARN."""
    return {AppState.SUCCEEDED: "SUCCEEDED", AppState.KILLED: "KILLED"}.get(state, "FAILED")


def last_words(state: AppState, diagnostics: str) -> str:
    """What a master tells YARN with it, so that :func:`status_of` finds the state again."""
    if state is AppState.TIMED_OUT and not diagnostics.startswith(TIMED_OUT):
        return TIMED_OUT + diagnostics
    return diagnostics


def state_of(report: AppReport) -> AppState:
    """Where it stands. Unknown stays what is least: not ended."""
    if report.state == "FINISHED":
        ended = _FINAL.get(report.final_status, AppState.FAILED)
        if ended is AppState.FAILED and report.diagnostics.startswith(TIMED_OUT):
            return AppState.TIMED_OUT
        return ended
    state = _STATES.get(report.state, AppState.SUBMITTED)
    if state is AppState.KILLED and _LIFETIME.search(report.diagnostics):
        return AppState.TIMED_OUT
    if state is AppState.KILLED and _CANNOT_START.search(report.diagnostics):
        return AppState.FAILED
    return state


def status_of(report: AppReport) -> AppStatus:
    """The whole of it."""
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
        diagnostics=_words(state, report),
    )


def _progress(state: AppState, told: float) -> float:
    """YARN says 100 % of everything that is over, however it ended."""
    if state is AppState.SUCCEEDED:
        return 1.0
    return 0.0 if state.ended and told >= 1.0 else min(1.0, max(0.0, told))


def _words(state: AppState, report: AppReport) -> str:
    text = report.diagnostics
    if state in (AppState.SUBMITTED, AppState.ACCEPTED):
        return waiting(text, report.queue) or text
    if state is AppState.TIMED_OUT and text.startswith(TIMED_OUT):
        return text[len(TIMED_OUT) :]
    if state is AppState.RUNNING and _stamp(text)[1].startswith("Application is "):
        return ""  # of the time before it ran
    never = _CANNOT_START.search(text)
    if never is not None and report.state == "KILLED":
        return never[1].strip()
    return plain(text) if state is AppState.FAILED else text


# ---------------------------------------------------------------------- why it waits

_DETAIL = re.compile(r"([A-Z][A-Za-z'()% ]*?)\s*=\s*(<[^<>]*>|[^;]*?)\s*;")
_AMOUNT = re.compile(r"([A-Za-z0-9_./-]+):\s*(-?\d+)([A-Za-z]*)")
_NAMES = {"memory": MEMORY, "vCores": VCORES}


def waiting(text: str, queue: str) -> Optional[str]:
    """YARN's reason why a master has no container yet, in words; None if it gives none."""
    _, said = _stamp(text)
    details = dict(_DETAIL.findall(said + ";"))
    wants = _read(details.get("AM Resource Request", ""))
    wanted = f"this one wants {wants}" if wants else "this one has to wait"
    if "Queue's AM resource limit exceeded" in said:
        most = _read(details.get("Queue Resource Limit for AM", ""))
        held = _read(details.get("Queue AM Resource Usage", ""))
        return (
            f"waits: the masters of the queue {queue} may hold {most or 'no more'} together,"
            f" they hold {held or 'nothing'}, and {wanted}"
        )
    if "User's AM resource limit exceeded" in said:
        most = _read(
            details.get("User AM Resource Limit of the queue")
            or details.get("User AM Resource Limit of the queue partition")
            or ""
        )
        held = _read(details.get("Queue AM Resource Usage", ""))
        return (
            f"waits: one user's masters may hold {most or 'no more'} in the queue {queue},"
            f" all masters there hold {held or 'nothing'}, and {wanted}"
        )
    if "waiting for resources to be assigned for AM" in said:
        return f"waits for room in the queue {queue}{_room(details)}"
    if "not yet activated" in said:
        reason = said.partition("not yet activated.")[2].partition("Details :")[0].strip(" .")
        return f"waits in the queue {queue}{': ' + reason if reason else ''}"
    if said.startswith("AM container is launched"):
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
    limit = _read(details.get("Queue's capacity (absolute resource)", ""))
    if limit:
        words.append(f"its own share is {limit}")
    there = _read(details.get("Partition Resource", ""))
    if there:
        words.append(f"the cluster has {there}")
    return f": {', '.join(words)}" if words else ""


def _read(text: str) -> str:
    """``<memory:512, vCores:1>`` for a person."""
    found: Dict[str, int] = {}
    for name, number, _unit in _AMOUNT.findall(text):
        found[_NAMES.get(name, name)] = int(number)
    return amounts.listed(found) if found else ""


def _stamp(text: str) -> Tuple[str, str]:
    """YARN puts the time before what it says: ``[Sat Nov 21 13:00:00 +0000 2026] ...``."""
    if text.startswith("["):
        stamp, closed, said = text[1:].partition("]")
        if closed:
            return stamp, said.strip()
    return "", text.strip()
