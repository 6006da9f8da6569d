"""YARN's states of an application, mapped once to :class:`AppState`, and back for its master.

YARN describes an application's end in three places: its state, the final status that the master
gave, and the diagnostics. Two of our states have no name in YARN: a timeout, and a master that no
attempt can start. A prefix of the diagnostics marks them.
"""

from __future__ import annotations

import re
from typing import Dict, Optional

from tony_core.hadoop.yarn.records import AppReport
from tony_core.schedulers.port import AppState

TYPE, TAG = "TONY", "tony"
"""TonY's applications have this type; one whose job sets another type has this tag."""

TIMED_OUT = "timed out: "
"""Prefix of a master's diagnostics when the job's time was over."""

CANNOT_START = "tony cannot start: "
"""Prefix of the kill reason when a master finds that no attempt can start; such a kill counts as
FAILED."""

RUNNING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
"""YARN's states of an application that has not ended."""

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
"""The states of FINISHED applications, by the final status that the master reported."""

_LIFETIME = re.compile(r"exceeded (?:the|its) lifetime", re.IGNORECASE)
_CANNOT_START = re.compile(f" with diagnostic message: {CANNOT_START}(.*)", re.DOTALL)


def final_status(state: AppState) -> str:
    """The final status that a master reports to YARN."""
    return {AppState.SUCCEEDED: "SUCCEEDED", AppState.KILLED: "KILLED"}.get(state, "FAILED")


def final_diagnostics(state: AppState, diagnostics: str) -> str:
    """The diagnostics that a master reports, from which :func:`state_of` recognizes a timeout."""
    if state is AppState.TIMED_OUT and not diagnostics.startswith(TIMED_OUT):
        return TIMED_OUT + diagnostics
    return diagnostics


def state_of(report: AppReport) -> AppState:
    """The state of an application; an unknown state of YARN counts as not ended."""
    if report.state == "FINISHED":
        ended = _FINAL.get(report.final_status, AppState.FAILED)
        if ended is AppState.FAILED and report.diagnostics.startswith(TIMED_OUT):
            return AppState.TIMED_OUT
        return ended
    state = _STATES.get(report.state, AppState.SUBMITTED)
    if state is AppState.KILLED and _LIFETIME.search(report.diagnostics):
        return AppState.TIMED_OUT
    if state is AppState.KILLED and start_failure(report) is not None:
        return AppState.FAILED
    return state


def start_failure(report: AppReport) -> Optional[str]:
    """Why no attempt can start a master, of an application that its master ended for that."""
    found = _CANNOT_START.search(report.diagnostics) if report.state == "KILLED" else None
    return found[1].strip() if found is not None else None
