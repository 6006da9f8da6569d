"""A job's story as time lines read it: in order, with times and fields that can be counted with."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Tuple

from tony_core.history.layout import event_number
from tony_core.history.reader import JobHistory
from tony_core.jsontext import is_number

LATEST = 1e11  # seconds since the epoch; a later time is damage


#: The phases of a job: name -> what the job does meanwhile.
PHASES: Mapping[str, str] = {
    "queued": "waiting for its master",
    "preparing": "running tony.am.command",
    "waiting": "waiting for containers",
    "staging": "getting files and executors onto the nodes",
    "starting": "starting programs",
    "running": "programs run",
    "lost": "programs ran, and the next session did it again",
    "stopping": "ending programs",
    "pausing": "pausing before the next session",
}
QUEUED, PREPARING, WAITING, STAGING, STARTING, RUNNING, LOST, STOPPING, PAUSING = PHASES
READY = "ready"  # of a task's bar: it waits for the others

ENDS = ("succeeded", "failed", "killed", "lost")
FAILURES = ("failed", "lost")


class Span(NamedTuple):
    """A part of the time, of the job (``kind`` is one of :data:`PHASES`) or of a task."""

    kind: str
    begin: float
    end: float
    session: int = -1
    text: str = ""  # of the job: why it waits; of a task: how the span ended
    node: str = ""


class Bar(NamedTuple):
    """One task."""

    task: str
    role: str
    is_sidecar: bool
    spans: Tuple[Span, ...] = ()
    held_s: float = 0.0  # how long it had containers
    running_s: float = 0.0


class Session(NamedTuple):
    """One session; ``text``: why it ended, where it failed."""

    number: int
    begin: float
    end: float
    text: str = ""


class Marker(NamedTuple):
    """A moment of the story that a time line shows."""

    at: float
    kind: str
    text: str
    task: str = ""


class Line:
    """A line of the story, with a time and fields that can be counted with."""

    __slots__ = ("at", "fields", "kind", "session", "task", "text")

    def __init__(self, event: Mapping[str, Any], at: float) -> None:
        self.at = at
        self.kind = str(event.get("kind"))
        self.task = str(event.get("task") or "")
        self.text = str(event.get("text") or "")
        session, fields = event.get("session"), event.get("fields")
        self.session = session if isinstance(session, int) else -1
        self.fields: Mapping[str, Any] = fields if isinstance(fields, dict) else {}


def lines_of(record: JobHistory) -> List[Line]:
    """The story in order, with times that never go back."""
    events = [event for event in record.events if isinstance(event, dict)]
    events.sort(key=event_number)
    found: List[Line] = []
    last = 0.0
    for event in events:
        last = max(last, seconds(event.get("time")))
        found.append(Line(event, last))
    return found


def seconds(value: Any) -> float:
    """A time out of a file; 0 for what is none."""
    return float(value) if is_number(value, LATEST) and value > 0 else 0.0
