"""Finds the application that a command names: by its id, by part of it, or the newest."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional

from tony_core.client.errors import NotFound
from tony_core.client.lookup import match_ids, read_job_history
from tony_core.schedulers.port import AppStatus, NoSuchApplication, Scheduler

SHOWN = 5


class Resolved(NamedTuple):
    """The application; ``how`` says how it was found where the id was not given whole."""

    app_id: str
    how: str = ""


def resolve(
    scheduler: Scheduler,
    text: Optional[str],
    wanted: Callable[[AppStatus], bool] = lambda status: True,
    kind: str = "application",
    history: Optional[str] = None,
) -> Resolved:
    """The application that ``text`` names; without a text the newest of those ``wanted``."""
    if text is not None:
        if not text.strip():
            # A script's empty variable is a mistake, and never "the newest".
            raise NotFound("the application's id is empty")
        return _by_text(scheduler, text, history)
    found = only_own(scheduler, [status for status in scheduler.list() if wanted(status)])
    if not found:
        raise _none(scheduler, kind)
    newest = max(found, key=lambda status: status.submitted)
    return Resolved(newest.app_id, f"{newest.app_id}, the newest {kind}")


def only(
    scheduler: Scheduler, wanted: Callable[[AppStatus], bool], kind: str, action: str
) -> Resolved:
    """The one application that is wanted; an error when there are several."""
    chosen = only_own(scheduler, [status for status in scheduler.list() if wanted(status)])
    found = [status.app_id for status in chosen]
    if not found:
        raise _none(scheduler, kind)
    if len(found) > 1:
        raise NotFound(
            f"there are {len(found)} {kind}s; name the one to {action}: {_several(found)}", found
        )
    return Resolved(found[0], f"{found[0]}, the only {kind}")


def only_own(scheduler: Scheduler, found: List[AppStatus]) -> List[AppStatus]:
    """Only the caller's own: a cluster lists all users', and may let any user end them."""
    return [status for status in found if scheduler.user in ("", status.user)]


def _none(scheduler: Scheduler, kind: str) -> NotFound:
    whose = f" of {scheduler.user}'s" if scheduler.user else ""
    return NotFound(f"there is no {kind}{whose} on the scheduler {scheduler.name}")


def _by_text(scheduler: Scheduler, text: str, history: Optional[str]) -> Resolved:
    try:
        return Resolved(scheduler.status(text).app_id)
    except NoSuchApplication:
        pass
    ids = [status.app_id for status in scheduler.list()]
    found = match_ids(ids, text)
    if len(found) == 1:
        return Resolved(found[0], found[0])
    if found:
        raise NotFound(f"{text!r} is ambiguous; it matches {_several(found)}", found)
    root = history or scheduler.history_root(None)
    if read_job_history(root, text, events=False) is not None:
        return Resolved(text)
    raise NotFound(
        f"no application {text!r} on the scheduler {scheduler.name}; tony list --scheduler"
        f" {scheduler.name} shows those it knows, tony history list those that have ended"
    )


def _several(ids: List[str]) -> str:
    shown = ", ".join(ids[:SHOWN])
    return shown if len(ids) <= SHOWN else f"{shown} or {len(ids) - SHOWN} more"
