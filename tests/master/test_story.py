"""The story that a master keeps in memory: when its sessions began."""

from __future__ import annotations

from typing import Any, List, Mapping

from tony_core.history.layout import StoryKind
from tony_core.master.session.commands import AddStoryLine, Level
from tony_core.master.story import SESSIONS, Story


def a_story() -> Story:
    return Story(lambda value: value, lambda line, loud: None)


def session_begins(at: float, story: Story) -> None:
    story.add(AddStoryLine(StoryKind.SESSION_STARTED, "session begins", Level.DECISION), at)


def test_sessions_of_the_attempts_before_are_known_and_damage_is_left_out() -> None:
    story = a_story()
    kind = StoryKind.SESSION_STARTED.value
    story.add(AddStoryLine(StoryKind.NOTE, "a note", Level.INFO), 1.0)
    events: List[Mapping[str, Any]] = [
        {"n": 2, "time": 10.0, "kind": kind},
        {"n": 3, "time": "noon", "kind": kind},
        {"n": 4, "time": 11.0, "kind": "note"},
        {"n": 4, "time": 12.0, "kind": kind},
        {"n": 5, "time": 20.0, "kind": kind},
    ]
    story.inherit(events)
    session_begins(30.0, story)
    assert list(story.session_begins) == [10.0, 20.0, 30.0]


def test_a_job_with_very_many_sessions_keeps_the_newest() -> None:
    story = a_story()
    for at in range(SESSIONS + 5):
        session_begins(float(at), story)
    assert list(story.session_begins) == [float(at) for at in range(5, SESSIONS + 5)]
