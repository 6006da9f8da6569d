"""What pages and the exported file have in common: templates, a story's lines. No web server."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

import jinja2

from tony_core.durations import show_duration
from tony_core.history.layout import ENDED, event_number
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import seconds
from tony_core.portal import formats
from tony_core.portal.index.rows import JobRow
from tony_core.portal.query import write_query
from tony_core.version import __version__
from tony_core.view import name_link

_WEIGHTS = ("info", "warning", "decision", "error")


class StoryLine(NamedTuple):
    """A line of the story, as a page shows it."""

    number: int
    time: float
    text: str
    weight: str


def make_templates() -> jinja2.Environment:
    """The templates, and how they show times, numbers and states."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        moment=formats.show_moment,
        span=show_duration,
        number=formats.show_number,
        size=formats.show_bytes,
        state=formats.show_state,
        plain=formats.plain_text,
        link_name=name_link,
        marked=formats.mark_words,
        amount=formats.show_amount,
        ran=lambda row: show_duration(_duration_of(row)),
        running=_show_running,
    )
    made.tests["match"] = lambda text, shape: re.match(shape, text) is not None
    made.globals.update(write_query=write_query, version=__version__, ended_states=ENDED)
    return made


def _show_running(row: JobRow) -> str:
    """How long a job took, or takes: then it goes on."""
    took = _duration_of(row)
    return show_duration(took) if row.state in ENDED else formats.show_running(took)


def _duration_of(row: JobRow) -> Optional[float]:
    """How long a job took, or takes until now."""
    begin = row.submitted or row.started
    if not begin:
        return None
    if row.state in ENDED:
        return max(0.0, row.finished - begin) if row.finished else None
    return max(0.0, time.time() - begin)


def read_story(record: JobHistory) -> Tuple[StoryLine, ...]:
    """The story's lines; what is odd in one gets its default."""
    return tuple(
        StoryLine(
            event_number(event),
            seconds(event.get("time")),
            str(event.get("text") or event.get("kind") or ""),
            str(event.get("weight")) if event.get("weight") in _WEIGHTS else "info",
        )
        for event in record.events
    )
