"""Reads logs for a page: a part at whole lines, and the lines with a word. Pure but for the reader
that is handed in.
"""

from __future__ import annotations

import time
from typing import Callable, List, NamedTuple, Tuple

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


class Part(NamedTuple):
    """A part of a log as a page shows it."""

    before: str
    line: str  # the one that was looked for
    after: str
    begin: int
    end: int
    size: int  # of the whole log
    is_over: bool


def read_part(read: ReadLog, offset: int, limit: int, at: int = -1) -> Part:
    """The whole lines from ``offset`` on; from the next line's begin where it is within one."""
    if offset <= 0:
        return cut_to_lines(read(0, limit), False, at)
    return cut_to_lines(read(offset - 1, limit + 1), False, at)


def cut_to_lines(chunk: LogChunk, is_tail: bool, at: int = -1) -> Part:
    """The whole lines of a part; of the log's tail also the last one as far as it is written.

    ``at``: the offset of a line that stands apart.
    """
    data, begin = chunk.data, chunk.offset
    if begin > 0:
        first = data.find(b"\n") + 1
        data, begin = data[first:], begin + first
    end = begin + len(data)
    if not is_tail and chunk.size >= 0 and end < chunk.size:
        last = data.rfind(b"\n") + 1
        if last:
            data, end = data[:last], begin + last
    ends = (begin, end, chunk.size, chunk.over)
    if not begin <= at < end:
        return Part("", "", data.decode("utf-8", "replace"), *ends)
    middle = at - begin
    stop = data.find(b"\n", middle)
    stop = len(data) if stop < 0 else stop + 1
    parts = (data[:middle], data[middle:stop], data[stop:])
    before, line, after = (part.decode("utf-8", "replace") for part in parts)
    return Part(before, line, after, *ends)
