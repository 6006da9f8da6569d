"""Reads logs for a page: a part at whole lines, and the lines with a word. Pure but for the reader
that is handed in.
"""

from __future__ import annotations

import time
from typing import Callable, List, Mapping, NamedTuple, Tuple

from tony_core.portal.job_source import LogChunk

PIECE = 1 << 20  # bytes of one request while searching
MOST_BYTES = 64 << 20  # of one search
MOST_HITS = 200
SEARCH_S = 2.0
LINE = 400  # characters of a hit

ReadLog = Callable[[int, int], LogChunk]  # from an offset, at most so many bytes


class Hit(NamedTuple):
    """A line with the word."""

    offset: int  # of its first byte
    text: str


class Found(NamedTuple):
    """What a search has found so far."""

    hits: Tuple[Hit, ...]
    begin: int
    end: int  # where to go on
    size: int
    is_whole: bool  # the log was searched to its end


def find_lines(data: bytes, words: str, offset: int) -> List[Hit]:
    """The lines of ``data`` (which begins at ``offset``) with ``words`` in any case."""
    wanted, lowered = words.lower().encode(), data.lower()
    if len(lowered) != len(data) or not wanted:
        return []
    hits = []
    at = lowered.find(wanted)
    while at >= 0:
        begin = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        # Of an endless line the part around the word.
        first = begin if at - begin < LINE else at - LINE // 4
        text = data[first : min(end, first + LINE)].decode("utf-8", "replace")
        hits.append(Hit(offset + begin, text))
        at = lowered.find(wanted, end)
    return hits


def search_log(read: ReadLog, words: str, begin: int) -> Found:
    """Search from ``begin`` on, within bounds of bytes, hits and time."""
    deadline = time.monotonic() + SEARCH_S
    hits: List[Hit] = []
    at, rest, size = begin, b"", -1
    while True:
        chunk = read(at, PIECE)
        size = max(size, chunk.size)
        at = chunk.offset + len(chunk.data)
        data = rest + chunk.data
        is_end = not chunk.data
        # A line that goes on in the next piece waits for it, unless it has no end in sight.
        cut = len(data) if is_end or len(data) > 2 * PIECE else data.rfind(b"\n") + 1
        hits += find_lines(data[:cut], words, at - len(data))
        rest = data[cut:]
        spent = at - begin >= MOST_BYTES or time.monotonic() >= deadline
        if is_end or spent or len(hits) >= MOST_HITS:
            break
    end = at - len(rest)
    if len(hits) > MOST_HITS:
        end = hits[MOST_HITS].offset
        return Found(tuple(hits[:MOST_HITS]), begin, end, size, False)
    return Found(tuple(hits), begin, end, max(size, at), is_end)


NO_SESSIONS: Mapping[int, int] = {}
Sessions = Mapping[int, int]  # of each session the byte at which its part of the log begins


class Piece(NamedTuple):
    """Text that stands apart from what is around it."""

    text: str
    sessions: Tuple[int, ...] = ()  # that begin here
    is_hit: bool = False  # the line that was looked for


class Part(NamedTuple):
    """A part of a log as a page shows it."""

    pieces: Tuple[Piece, ...]
    begin: int
    end: int
    size: int  # of the whole log
    is_over: bool


EMPTY = Part((), 0, 0, 0, True)


def read_part(
    read: ReadLog, offset: int, limit: int, at: int = -1, sessions: Sessions = NO_SESSIONS
) -> Part:
    """The whole lines from ``offset`` on; from the next line's begin where it is within one.

    Where a session begins, a line does, even if the session before did not end its last one.
    """
    if offset <= 0:
        return cut_to_lines(read(0, limit), False, at, sessions)
    if offset in sessions.values():
        return cut_to_lines(read(offset, limit), False, at, sessions)
    return cut_to_lines(read(offset - 1, limit + 1), False, at, sessions)


def cut_to_lines(
    chunk: LogChunk, is_tail: bool, at: int = -1, sessions: Sessions = NO_SESSIONS
) -> Part:
    """The whole lines of a part; of the log's tail also the last one as far as it is written.

    ``at``: the offset of a line that stands apart.
    """
    data, begin = chunk.data, chunk.offset
    if begin > 0 and begin not in sessions.values():
        first = data.find(b"\n") + 1
        data, begin = data[first:], begin + first
    end = begin + len(data)
    if not is_tail and chunk.size >= 0 and end < chunk.size:
        last = data.rfind(b"\n") + 1
        if last:
            data, end = data[:last], begin + last
    return Part(_split(data, begin, at, sessions), begin, end, chunk.size, chunk.over)


def _split(data: bytes, begin: int, at: int, sessions: Sessions) -> Tuple[Piece, ...]:
    """The text, apart where a session begins and around the line at ``at``."""
    if not data:
        return ()
    end = begin + len(data)
    cuts = {begin, *(byte for byte in sessions.values() if begin <= byte < end)}
    if begin <= at < end:
        stop = data.find(b"\n", at - begin) + 1
        cuts |= {at, begin + stop if stop else end}
    found = []
    ordered = sorted(cuts - {end})
    for first, last in zip(ordered, [*ordered[1:], end], strict=True):
        here = tuple(sorted(session for session, byte in sessions.items() if byte == first))
        text = data[first - begin : last - begin].decode("utf-8", "replace")
        found.append(Piece(text, here, first == at))
    return tuple(piece for piece in found if piece.text)
