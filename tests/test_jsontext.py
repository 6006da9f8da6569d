"""JSON that a stranger wrote: what is read of it can be written again."""

from __future__ import annotations

import json
import math

import pytest

from tony_core.jsontext import may_be_odd, read_lines, read_value, write_value

HALVES = (
    (rb'"a\ud800b"', "a\ufffdb"),
    (rb'"\udfff"', "\ufffd"),
    (rb'"\uD83D\uDE00"', "\U0001f600"),
    (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
    (rb'"\\ud800"', r"\ud800"),
    (rb'"\\\ud800"', "\\\ufffd"),
    (b'"\xc3\xa9\\ud800"', "\u00e9\ufffd"),
)
NUMBERS = ("NaN", "-Infinity", "1e999", "-1E+999", "1e0400", "1" + 4000 * "0", 400 * "9" + ".5")


@pytest.mark.parametrize(("data", "text"), HALVES)
def test_half_a_surrogate_pair_is_replaced(data: bytes, text: str) -> None:
    assert read_value(data) == text == read_value(data.decode())
    assert read_value(data).encode()
    assert read_lines(b"{%s: %s}" % (data, data)) == [{text: text}]


def test_so_is_one_that_is_in_a_text() -> None:
    assert read_value('"\ud800"') == "\ufffd"


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_that_cannot_be_counted_with_are_none(number: str) -> None:
    assert read_value(f"[{number}, 1]") == [None, 1]
    assert may_be_odd(f"[{number}, 1]".encode())


def test_other_numbers_stay() -> None:
    text = "[0,-5,18446744073709551616,0.30000000000000004,1e-300,1.5e+20]"
    assert read_value(text) == json.loads(text)
    assert not may_be_odd(text.encode())
    assert may_be_odd(rb'"\uD800"') and not may_be_odd(rb'"\u00e9"')


def test_what_is_written_is_json() -> None:
    found = write_value({"a": [math.nan, (math.inf, 1.5)], "b": object})
    assert found.startswith('{"a":[null,[null,1.5]],"b":"')
    assert write_value([1, math.nan], indent=2) == "[\n  1,\n  null\n]"
