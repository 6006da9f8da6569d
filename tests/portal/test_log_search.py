"""Parts of logs at whole lines, and the lines with a word."""

from __future__ import annotations

import random
from typing import List

from hypothesis import given
from hypothesis import strategies as st

from tony_core.portal import log_search
from tony_core.portal.job_source import LogChunk
from tony_core.portal.log_search import (
    MOST_HITS,
    Part,
    cut_to_lines,
    find_lines,
    read_part,
    search_log,
)


def texts(part: Part) -> List[str]:
    return [piece.text for piece in part.pieces]


def reader(data: bytes, most: int = 1 << 30) -> log_search.ReadLog:
    """Gives less than it is asked for, as files do."""
    return lambda at, limit: LogChunk(data[at : at + min(limit, most)], at, len(data), True)


def test_a_log_without_a_line_yet() -> None:
    for is_tail in (True, False):
        for sessions in ({}, {0: 0}, {0: 0, 1: 0}):
            part = cut_to_lines(LogChunk(b"", 0, 0, False), is_tail, sessions=sessions)
            assert part == Part((), 0, 0, 0, False)
    assert cut_to_lines(LogChunk(b"", 7, 7, True), True).pieces == ()


def test_lines_with_a_word_in_any_case_and_where_they_begin() -> None:
    data = "eins\nZwei Zwei\ndrei\n\nÜber zwei".encode()
    hits = find_lines(data, "zWEI", 1000)
    assert [(hit.offset - 1000, hit.text) for hit in hits] == [(5, "Zwei Zwei"), (21, "Über zwei")]
    assert find_lines(data, "", 0) == []
    (hit,) = find_lines(b"x" * 5000 + b"needle" + b"y" * 5000, "needle", 0)
    assert "needle" in hit.text and len(hit.text) <= log_search.LINE


@given(st.lists(st.sampled_from([b"ab", b"b", b"\n", b"needle", b"x\n"]), max_size=60),
       st.integers(1, 9))  # fmt: skip
def test_borders_of_pieces_hide_nothing(parts: list[bytes], most: int) -> None:
    data = b"".join(parts)
    found = search_log(reader(data, most), "needle", 0)
    assert found.is_whole and found.size == len(data)
    assert list(found.hits) == find_lines(data, "needle", 0)


def test_a_search_goes_on_where_it_stopped() -> None:
    lines = [b"needle %d\n" % number for number in range(3 * MOST_HITS + 7)]
    data = b"".join(lines)
    seen, at = [], 0
    while True:
        found = search_log(reader(data, 1000), "needle", at)
        seen += [hit.text for hit in found.hits]
        if found.is_whole:
            break
        assert found.end > at
        at = found.end
    assert seen == [line.decode().rstrip() for line in lines]


def test_a_part_has_whole_lines_unless_it_is_the_end() -> None:
    data = b"one\ntwo\nthree\nfour"
    middle = cut_to_lines(LogChunk(data[2:10], 2, len(data)), is_tail=False)
    assert (texts(middle), middle.begin, middle.end) == (["two\n"], 4, 8)
    tail = cut_to_lines(LogChunk(data[9:], 9, len(data)), is_tail=True)
    assert (texts(tail), tail.begin, tail.end) == (["four"], 14, 18)
    found = cut_to_lines(LogChunk(data, 0, len(data)), is_tail=False, at=4)
    assert texts(found) == ["one\n", "two\n", "three\nfour"]
    assert [piece.is_hit for piece in found.pieces] == [False, True, False]


def test_parts_follow_each_other_without_gaps() -> None:
    luck = random.Random(7)
    data = b"".join(b"%d\n" % luck.randrange(10 ** luck.randrange(1, 30)) for _ in range(500))
    at, text = 0, ""
    while at < len(data):
        part = read_part(reader(data, 300), at, 300)
        assert part.begin == at
        text, at = text + "".join(texts(part)), part.end
    assert text == data.decode()
    assert read_part(reader(data), 3, 300).begin == data.index(b"\n", 2) + 1


def test_where_sessions_begin_the_text_stands_apart() -> None:
    data = b"first\ncut shortsecond\nthird\n"
    sessions = {0: 0, 1: 15, 2: 15, 3: 22, 4: len(data)}
    found = cut_to_lines(LogChunk(data, 0, len(data)), is_tail=True, sessions=sessions)
    assert [(piece.text, piece.sessions) for piece in found.pieces] == [
        ("first\ncut short", (0,)),
        ("second\n", (1, 2)),
        ("third\n", (3,)),
    ]
    part = read_part(reader(data), 15, 300, sessions=sessions)
    assert (part.begin, texts(part)) == (15, ["second\n", "third\n"]), "not from the next line"
    hit = cut_to_lines(LogChunk(data, 0, len(data)), True, at=15, sessions=sessions)
    assert [(piece.is_hit, piece.sessions) for piece in hit.pieces][1] == (True, (1, 2))
