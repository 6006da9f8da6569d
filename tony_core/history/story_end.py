"""A job's end out of its story, for a history whose summary is missing or damaged. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from tony_core.history.layout import StoryKind
from tony_core.jsontext import is_number


def end_of_story(story: List[Mapping[str, Any]]) -> Dict[str, Any]:
    """What the last line says of the job, in the shape of its summary; empty while it goes on."""
    last = story[-1] if story else {}
    fields = last.get("fields")
    fields = fields if isinstance(fields, dict) else {}
    state = fields.get("state")
    if last.get("kind") != StoryKind.JOB_ENDED or not isinstance(state, str):
        return {}
    times = [event["time"] for event in story if is_number(event.get("time")) and event["time"] > 0]
    if not times:
        return {}
    found: Dict[str, Any] = {
        "state": state,
        "phase": "ended",
        "submitted": min(times),  # it may have been queued before: that is not known any more
        "finished": max(times),
        "session": last.get("session", -1),
    }
    if fields.get("buried"):
        found["buried"] = True
    head, _, why = str(last.get("text") or "").partition(f": {state}: ")
    return {**found, "diagnostics": why} if head and why else found
