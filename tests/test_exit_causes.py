"""Every cause has a meaning, and exit codes are those of a shell."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tony_core.exit_causes import (
    MEANINGS,
    ExitCause,
    Fault,
    decode_status,
    exit_code_of,
    parse_cause,
    signal_in,
)


def test_every_cause_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCause)
    assert all(cause.words for cause in ExitCause)


def test_a_cause_is_its_value_wherever_it_is_written() -> None:
    cause = ExitCause.EXECUTION_TIMEOUT
    assert f"{cause}" == str(cause) == cause == "execution-timeout"
    assert json.dumps({"cause": cause}) == '{"cause": "execution-timeout"}'


@pytest.mark.parametrize("text", ["", "?", "Exited", "a cause of a later version"])
def test_an_unknown_cause_stays_unknown_and_is_not_the_users(text: str) -> None:
    assert parse_cause(text) is ExitCause.UNKNOWN
    assert parse_cause(text).fault is Fault.SYSTEM


@pytest.mark.parametrize("cause", list(ExitCause))
def test_every_value_is_read_back(cause: ExitCause) -> None:
    assert parse_cause(cause.value) is cause


def test_exit_codes_of_signals() -> None:
    assert exit_code_of(signal.SIGKILL) == 137
    assert [signal_in(code) for code in (0, 1, 128, 137, 192, 193, 255, -9)] == [
        0, 0, 0, 9, 64, 0, 0, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(("line", "code", "number"), [("exit 3", 3, 0), ("kill -9 $$", 137, 9)])
def test_wait_statuses(line: str, code: int, number: int) -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", line], {})
    assert decode_status(os.waitpid(pid, 0)[1]) == (code, number)
