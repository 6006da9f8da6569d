"""Texts as the portal's pages show them."""

from __future__ import annotations

import time

from tony_core.portal.formats import MOST_MARKS, mark_words


def test_words_are_marked_in_any_case_and_all_is_escaped() -> None:
    assert mark_words("<a> A&", "a") == ("&lt;<mark>a</mark>&gt; <mark>A</mark>&amp;")
    assert mark_words("<a>", "") == "&lt;a&gt;"
    assert mark_words("a<b", "a<") == "<mark>a&lt;</mark>b"


def test_a_log_that_is_nothing_but_the_word_costs_little() -> None:
    began = time.process_time()
    found = mark_words("a" * (256 << 10), "a")
    assert found.count("<mark>") == MOST_MARKS and found.endswith("aaa")
    assert time.process_time() - began < 1.0
