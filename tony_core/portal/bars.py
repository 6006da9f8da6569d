"""A job's time line as a page draws it: bars on a scale from 0 to 1000, with their words. Pure."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from tony_core.durations import show_duration
from tony_core.history.story_lines import PHASES, READY, RUNNING, Bar, Session, Span
from tony_core.history.timeline import Timeline

WIDTH = 1000.0
TASKS = 25  # bars on a job's page
_THINNEST = 0.8  # of a piece that can be seen
_MERGED = 400  # pieces of one bar; more are drawn as one
_OF_TASK: Dict[str, str] = {
    **PHASES,
    RUNNING: "its program ran",
    READY: "ready, waiting for the others",
    "staging": "its files and its executor came onto the node",
}


class Piece(NamedTuple):
    """A part of a bar."""

    kind: str
    x: float
    width: float
    text: str


class Strip(NamedTuple):
    """A bar, and what it shows in words."""

    name: str
    pieces: Tuple[Piece, ...]
    text: str


class Drawing(NamedTuple):
    """All of it."""

    begin: float
    end: float
    is_over: bool
    sums: Tuple[Tuple[str, str, float], ...]  # kind, what it means, seconds
    phases: Strip
    tasks: Tuple[Strip, ...]
    more_tasks: int
    sessions: Tuple[Session, ...]
    lost_known: bool
    has_ready: bool


def draw(line: Timeline, tasks: int = TASKS) -> Drawing:
    """The drawing of a time line."""
    scale = WIDTH / ((line.end - line.begin) or 1.0)
    sums = tuple((kind, PHASES[kind], seconds) for kind, seconds in line.sums().items())
    shown = line.shown_bars(tasks)
    return Drawing(
        line.begin,
        line.end,
        line.is_over,
        sums,
        Strip("", _pieces(line.phases, line.begin, scale, PHASES), describe(sums)),
        tuple(
            Strip(bar.task, _pieces(bar.spans, line.begin, scale, _OF_TASK), _describe_bar(bar))
            for bar in shown
        ),
        len(line.bars) - len(shown),
        line.sessions,
        line.lost_known,
        any(span.kind == READY for bar in shown for span in bar.spans),
    )


def describe(sums: Iterable[Tuple[str, str, float]]) -> str:
    """``queued 2.0 s, running 1 min 00 s``."""
    return ", ".join(f"{kind} {show_duration(seconds)}" for kind, _, seconds in sums)


def _describe_bar(bar: Bar) -> str:
    sums: Dict[str, float] = {}
    for span in bar.spans:
        sums[span.kind] = sums.get(span.kind, 0.0) + span.end - span.begin
    return describe((kind, "", seconds) for kind, seconds in sums.items())


def _pieces(
    spans: Sequence[Span], begin: float, scale: float, words: Mapping[str, str]
) -> Tuple[Piece, ...]:
    found: List[Piece] = []
    for span in _merged(spans):
        seconds = span.end - span.begin
        text = f"{words.get(span.kind, span.kind)}: {show_duration(seconds)}"
        if span.session > 0:
            text += f", session {span.session}"
        if span.node:
            text += f", on {span.node}"
        if span.text:
            text += f", {span.text}"
        x = min((span.begin - begin) * scale, WIDTH - _THINNEST)
        found.append(Piece(span.kind, round(x, 2), round(max(seconds * scale, _THINNEST), 2), text))
    return tuple(found)


def _merged(spans: Sequence[Span]) -> Sequence[Span]:
    """The spans, of very many the longest ones."""
    if len(spans) <= _MERGED:
        return spans
    longest = sorted(spans, key=lambda span: span.begin - span.end)[:_MERGED]
    return sorted(longest, key=lambda span: span.begin)


def draw_sums(sums: Mapping[str, float], longest: float) -> Strip:
    """The phases of one of several jobs, in their order; ``longest`` is the whole width."""
    scale = WIDTH / (longest or 1.0)
    known = [(kind, seconds) for kind, seconds in sums.items() if seconds > 0]
    pieces, at = [], 0.0
    for kind, seconds in known:
        text = f"{PHASES.get(kind, kind)}: {show_duration(seconds)}"
        pieces.append(Piece(kind, round(at * scale, 2), round(seconds * scale, 2), text))
        at += seconds
    return Strip("", tuple(pieces), describe((kind, "", seconds) for kind, seconds in known))
