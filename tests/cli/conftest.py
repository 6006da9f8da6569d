"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator, List, NamedTuple

import pytest

from tests.client.scripted import OPENED, PageServer, Scripted
from tony_core import schedulers
from tony_core.cli.main import main


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Tony = Callable[..., Done]


@pytest.fixture
def tony(capsys: pytest.CaptureFixture[str]) -> Tony:
    """``tony("list", "--json")`` in this process."""

    def call(*words: str) -> Done:
        capsys.readouterr()
        code = main(list(words))
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """A scheduler that the command line opens, as it opens any other, by the name ``local``."""
    made = Scripted(str(tmp_path / "tony-home"))
    OPENED.append(made)
    monkeypatch.setitem(schedulers.BUILT_IN, "local", ("tests.client.scripted", "open_last"))
    yield made
    OPENED.pop()


@pytest.fixture
def page() -> Iterator[PageServer]:
    """A job's page."""
    with PageServer() as made:
        yield made


def lines(text: str) -> List[str]:
    """The lines that say something."""
    return [line for line in text.splitlines() if line.strip()]
