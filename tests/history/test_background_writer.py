"""Puts that a slow or broken place does not turn into a wait."""

from __future__ import annotations

import threading
from typing import Dict, List

import pytest

from tony_core.history import background_writer
from tony_core.history.background_writer import BackgroundWriter, Change


def test_files_are_put_and_the_thread_goes() -> None:
    found: Dict[str, Change] = {}
    made = BackgroundWriter(found.__setitem__)
    made.put("a", Change(b"1"))
    made.put("b", Change(b"2"))
    assert made.close(5) == []
    assert found == {"a": Change(b"1"), "b": Change(b"2")}
    made.put("c", Change(b"3"))  # too late, and silent
    assert "c" not in found


def test_nothing_put_needs_no_thread() -> None:
    assert BackgroundWriter(lambda name, data: None).close(5) == []


def test_of_versions_that_wait_only_the_newest_is_put() -> None:
    go = threading.Event()
    found: List[bytes] = []

    def put(name: str, change: Change) -> None:
        go.wait(600)
        found.append(change.data)

    made = BackgroundWriter(put)
    for number in range(100):  # none of which is waited for
        made.put("a", Change(b"%d" % number))
    go.set()
    assert made.close(5) == []
    assert found[-1] == b"99"
    assert len(found) <= 2


def test_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "RETRY_S", 0.01)
    tries: List[bytes] = []

    def put(name: str, change: Change) -> None:
        tries.append(change.data)
        if len(tries) < 3:
            raise OSError("the name node sleeps")

    made = BackgroundWriter(put)
    made.put("a", Change(b"1"))
    assert made.close(5) == []
    assert tries == [b"1"] * 3


def test_what_could_not_be_put_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "RETRY_S", 0.01)

    def put(name: str, change: Change) -> None:
        raise OSError("no space left")

    made = BackgroundWriter(put)
    made.put("summary.json", Change(b"1"))
    problems = made.close(0.1)
    assert any("no space left" in line for line in problems)
    assert any("summary.json" in line for line in problems)


def test_a_place_that_hangs_holds_the_end_up_for_its_time_only() -> None:
    go = threading.Event()
    made = BackgroundWriter(lambda name, data: go.wait(600) and None)
    made.put("a", Change(b"1"))
    made.put("b", Change(b"2"))
    problems = made.close(0.1)
    assert any("b:" in line for line in problems)
    go.set()


def test_a_place_that_refuses_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "BROKEN_S", 0.1)

    def put(name: str, change: Change) -> None:
        raise OSError("no such place")

    made = BackgroundWriter(put)
    made.put("a", Change(b"1"))
    assert made.close(600)


def test_any_exception_is_logged_counted_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "RETRY_S", 0.01)
    found: Dict[str, bytes] = {}
    logged: List[str] = []
    tries = 0

    def put(name: str, change: Change) -> None:
        nonlocal tries
        if name == "a":
            tries += 1
            if tries < 4:
                raise ValueError("embedded null byte")
        found[name] = change.data

    made = BackgroundWriter(put, logged.append)
    made.put("a", Change(b"1"))
    made.put("b", Change(b"2"))
    assert made.close(5) == []
    assert found == {"a": b"1", "b": b"2"}
    (text,) = logged  # the same again is counted, not repeated
    assert "ValueError: embedded null byte" in text and "Traceback" in text
    assert made.faults.count == 3


def test_a_file_that_never_can_be_put_keeps_back_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "RETRY_S", 0.01)
    monkeypatch.setattr(background_writer, "BROKEN_S", 0.2)
    found: List[str] = []

    def put(name: str, change: Change) -> None:
        if name == "bad":
            raise RecursionError("too deep")
        found.append(name)

    made = BackgroundWriter(put)
    for name in ("bad", "good", "better"):
        made.put(name, Change(b"1"))
    problems = made.close(5)
    assert sorted(found) == ["better", "good"]
    assert any("RecursionError" in text for text in problems)
    assert any(text.startswith("bad: not written") for text in problems)
