"""Signals while a job is being submitted."""

from __future__ import annotations

import os
import signal

import pytest

from tony_core.cli.interrupts import Interrupted, Interrupts


def test_a_signal_is_raised_until_it_is_deferred() -> None:
    words = r"nothing was submitted \(SIGTERM\)"
    with Interrupts("nothing was submitted"), pytest.raises(Interrupted, match=words):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_swallowed_signal_is_raised_before_anything_is_submitted() -> None:
    with Interrupts("nothing was submitted") as interrupts:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Interrupted:
            pass
        with pytest.raises(Interrupted, match="nothing was submitted"):
            interrupts.defer()


def test_a_deferred_signal_is_noted() -> None:
    woken = []
    with Interrupts() as interrupts:
        interrupts.defer(lambda: woken.append(True))
        os.kill(os.getpid(), signal.SIGTERM)
        interrupts.defer(lambda: woken.append(False))  # another one waits: nothing is raised
        os.kill(os.getpid(), signal.SIGINT)
    assert interrupts.received == [signal.SIGTERM, signal.SIGINT]
    assert woken == [True, False]
