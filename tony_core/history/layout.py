"""The names of the files in a job's history folder, and what the lines of its story are about.

``summary.json``       the job and its tasks, in the shapes of the job's page
``live-0001.jsonl``    what has changed since the summary that names it (its ``live``)
``events-0001.jsonl``  the story
``metrics-0001.jsonl`` the points of the metric series, while the job runs
``metrics.jsonl``      the same series at the end of the job, a line for each task
``tony-final.xml``     the configuration, masked
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Mapping

SUMMARY = "summary.json"
METRICS = "metrics.jsonl"
CONFIG = "tony-final.xml"
EVENTS, POINTS, LIVE = "events", "metrics", "live"  # kinds of files that are numbered
KINDS = (EVENTS, POINTS, LIVE)
#: The next master's event numbers begin this far on: readers may have had events from the master
#: before it that never reached history.
ATTEMPT_GAP = 1000
#: The states in which a job is over.
ENDED = ("SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT")
_NUMBERED = re.compile(r"^(events|metrics|live)-(\d{4,9})\.jsonl$", re.ASCII)


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
    STALLED = "stalled"
    STALL_OVER = "stall-over"
    STALL_LAG = "stall-lag"  # of a stall that lasts: another task is named as the one that lags

    # containers and nodes
    WAITING = "waiting"
    ALLOCATION_TIMEOUT = "allocation-timeout"
    PREEMPTION_WARNED = "preemption-warned"
    PREEMPTION_SENT = "preemption-sent"  # to programs
    PREEMPTION_WITHDRAWN = "preemption-withdrawn"
    NOT_CLEAN = "not-clean"
    NOT_ENDED = "not-ended"
    NODE_LOST = "node-lost"
    NODE_FORGIVEN = "node-forgiven"

    # the master's own trouble
    TRACKING = "tracking"  # of the job as a run, by another server
    TOKENS = "tokens"  # they end, or no fresh ones come
    JOURNAL = "journal"
    HISTORY = "history"
    FAULT = "fault"


def segment_name(number: int, kind: str = EVENTS) -> str:
    """``events-0001.jsonl``."""
    return f"{kind}-{number:04d}.jsonl"


def segment_number(name: str, kind: str = EVENTS) -> int:
    """The number of a segment's file name; 0 if it is something else."""
    match = _NUMBERED.match(name)
    return int(match.group(2)) if match and match.group(1) == kind else 0


def is_history_file(name: str) -> bool:
    """Whether a file of that name is part of a history."""
    return name in (SUMMARY, METRICS, CONFIG) or _NUMBERED.match(name) is not None


def event_number(event: Mapping[str, Any]) -> int:
    """An event's place in the story; 0 when it has none."""
    number = event.get("n")
    return number if isinstance(number, int) else 0
