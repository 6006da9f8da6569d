"""The names of the files in a job's history folder, and what the lines of its story are about."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Mapping

SUMMARY = "summary.json"
CONFIG = "tony-final.xml"
#: The next master's event numbers begin this far on: readers may have had events from the master
#: before it that never reached history.
ATTEMPT_GAP = 1000
_SEGMENT = re.compile(r"^events-(\d{4,})\.jsonl$")


class StoryKind(str, Enum):
    """What a line of a story is about; its value stands in history and ``--json``."""

    # the job
    PREPROCESS = "preprocess"
    TAKEOVER = "takeover"
    ENDING = "ending"
    JOB_ENDED = "job-ended"  # the last line of every story
    LEFT_BEHIND = "left-behind"

    # sessions
    SESSION_STARTED = "session-started"
    SESSION_FAILED = "session-failed"
    ROOT_CAUSE = "root-cause"
    RESTARTING = "restarting"
    BACKOFF = "backoff"
    BUDGET_HEALED = "budget-healed"
    WAVE_BEGUN = "stage-released"
    ELASTIC = "elastic"
    ROUND = "round"
    CHIEF_DONE = "chief-done"
    UNTRACKED = "untracked"

    # tasks
    TASK_STATE = "task-state"
    TASK_AGAIN = "task-again"
    TASK_GIVEN_UP = "task-given-up"
    SIDECAR_GIVEN_UP = "sidecar-given-up"
    NOTE = "note"  # of an executor, for a person
    SERVING = "serving"
    ENVIRONMENT = "environment"

    # containers and nodes
    WAITING = "waiting"
    ALLOCATION_TIMEOUT = "allocation-timeout"
    PREEMPTION_WARNED = "preemption-warned"
    NOT_CLEAN = "not-clean"
    NOT_ENDED = "not-ended"
    NODE_LOST = "node-lost"
    NODE_FORGIVEN = "node-forgiven"

    # the master's own trouble
    TOKENS = "tokens"  # they end, or no fresh ones come
    JOURNAL = "journal"
    HISTORY = "history"
    FAULT = "fault"


def segment_name(number: int) -> str:
    """``events-0001.jsonl``."""
    return f"events-{number:04d}.jsonl"


def segment_number(name: str) -> int:
    """The number of a segment's file name; 0 if it is something else."""
    match = _SEGMENT.match(name)
    return int(match.group(1)) if match else 0


def event_number(event: Mapping[str, Any]) -> int:
    """An event's place in the story; 0 when it has none."""
    number = event.get("n")
    return number if isinstance(number, int) else 0
