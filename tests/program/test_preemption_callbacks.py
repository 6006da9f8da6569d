"""Which functions ``tony.on_preemption()`` takes: the wrong ones are refused when registered."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tony
from tests.cli.processes import until
from tests.docs.pages import CHECKOUT, blocks

#: What the program prints after a line of the documentation that has this in it.
MARKS = {"train.py": "trains", "30": "warned True", "drawn": "withdrawn"}


class Saver:
    def save(self, left: Any) -> None:
        """Take the time that is left."""

    def __call__(self) -> None:
        """Take nothing."""

    def over(self) -> None:
        """Take nothing."""


def two(left: Any, more: Any) -> None:
    """Take too much."""


def named(*, left: Any) -> None:
    """Take no argument by its place."""


@pytest.fixture(autouse=True)
def outside_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TONY_PREEMPTION_FILE", "TONY_REPORT_FILE"):
        monkeypatch.delenv(name, raising=False)
    import tony_preemption

    monkeypatch.setattr(tony_preemption, "_watch", tony_preemption._Watch())


@pytest.mark.parametrize(
    "callback",
    [
        print, dict, [].append, Saver().save, lambda *all: None, lambda left, more=1: None,
        functools.partial(two, 1), lambda left: None,
    ],
)  # fmt: skip
def test_what_can_be_called_with_the_seconds_left(callback: Any) -> None:
    assert tony.on_preemption(callback) is callback


@pytest.mark.parametrize("withdrawn", [print, Saver(), Saver().over, lambda left=1: None])
def test_what_can_be_called_when_it_is_withdrawn(withdrawn: Any) -> None:
    tony.on_preemption(print, withdrawn)


@pytest.mark.parametrize(
    ("callback", "words"),
    [
        (lambda: 1, "<lambda>() cannot be called so: too many positional arguments"),
        (two, "two(left: Any, more: Any) -> None cannot be called so: missing a required"),
        (named, "named(*, left: Any) -> None cannot be called so: "),
        (threading.Event().set, "set() cannot be called so"),
        (Saver(), "Saver() -> None cannot be called so"),
        (3, "3 cannot be called"),
    ],
)
def test_a_callback_of_other_arguments_is_refused(callback: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        tony.on_preemption(callback)
    text = str(caught.value).replace("'Any'", "Any").replace("'None'", "None")
    assert text.startswith("on_preemption() expects for 'callback' a function of one argument")
    assert "the seconds left" in text and words in text


@pytest.mark.parametrize(
    ("withdrawn", "words"), [(5, "5 cannot be called"), (two, "missing a required argument")]
)
def test_it_is_named_which_of_the_two_is_wrong(withdrawn: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        tony.on_preemption(print, withdrawn)
    assert "for 'withdrawn' a function of no arguments" in str(caught.value)
    assert "seconds" not in str(caught.value)
    import tony_preemption

    assert tony_preemption._watch._callbacks == [], "half of it is registered"


def test_the_way_to_try_a_callback_by_hand(tmp_path: Path) -> None:
    """The block of docs/program.md, line by line."""
    (tmp_path / "train.py").write_text(
        "import threading, tony\n"
        "over = threading.Event()\n"
        "say = lambda *words: print(*words, file=open('lines', 'a'), flush=True)\n"
        "tony.on_preemption(lambda left: say('warned', 20 < left <= 30),"
        " lambda: (say('withdrawn'), over.set()))\n"
        "say('trains')\n"
        "over.wait(60)\n"
    )
    (block,) = [each for each in blocks("sh") if "TONY_PREEMPTION_FILE" in each.text]
    printed = tmp_path / "lines"
    env = dict(os.environ, PYTHONPATH=str(CHECKOUT / "program"))
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    with subprocess.Popen(["bash", "-e"], stdin=subprocess.PIPE, cwd=tmp_path, env=env) as shell:
        assert shell.stdin is not None
        for line in block.text.splitlines():
            shell.stdin.write(f"{line}\n".encode())
            shell.stdin.flush()
            for mark, word in MARKS.items():
                if mark in line and not line.startswith("#"):
                    until(lambda w=word: printed.exists() and w in printed.read_text(), word)
        shell.stdin.write(b"wait\n")
        shell.stdin.close()
        assert shell.wait(60) == 0
    assert printed.read_text().split("\n") == ["trains", "warned True", "withdrawn", ""]
