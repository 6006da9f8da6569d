"""Watching an application that somebody started before, from any process."""

from __future__ import annotations

from typing import Optional

from tony_core.client.ended_jobs import past_view, read_past
from tony_core.client.errors import NotFound
from tony_core.client.view import JobView
from tony_core.client.watch import Callbacks, Watch
from tony_core.schedulers.port import NoSuchApplication, Scheduler


def attach(
    scheduler: Scheduler,
    app_id: str,
    callbacks: Callbacks = Callbacks(),
    history: Optional[str] = None,
) -> Watch:
    """A watch on it; one that has ended already finishes at once."""
    if callbacks.on_application is not None:
        callbacks.on_application(app_id)
    return Watch(scheduler, app_id, callbacks, history=history)


def look_up(scheduler: Scheduler, app_id: str, history: Optional[str] = None) -> JobView:
    """One look at an application that only history may still know."""
    from tony_core.client.ended_jobs import current_view

    try:
        return current_view(scheduler, scheduler.status(app_id), history=history)
    except NoSuchApplication:
        past = read_past(history or scheduler.history_root(None), app_id, events=False)
        if past is None:
            raise NotFound(f"no application {app_id} on {scheduler.name}") from None
        return past_view(past)
