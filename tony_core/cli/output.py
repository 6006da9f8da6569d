"""Where words go: data on standard output, everything for a person on standard error when
the data is for a program; colour and rich only on a terminal that wants them."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, List, Mapping, Optional, Sequence, TextIO

COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
#: Told apart well on dark and light backgrounds.
TASK_COLOURS = ("36", "33", "35", "32", "34", "96", "93", "95", "92", "94")
STATE_COLOURS = {
    "SUCCEEDED": "green",
    "succeeded": "green",
    "RUNNING": "cyan",
    "running": "cyan",
    "FAILED": "red",
    "failed": "red",
    "lost": "red",
    "TIMED_OUT": "red",
    "KILLED": "yellow",
    "killed": "yellow",
}


def on_terminal(stream: TextIO) -> bool:
    """Whether a person looks at it, on a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def wants_colour(stream: TextIO) -> bool:
    """Whether colour is welcome there (https://no-color.org)."""
    return on_terminal(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Text in a colour, where that is welcome."""
    if not colour or not wants_colour(stream):
        return text
    return f"\x1b[{COLOURS.get(colour, colour)}m{text}\x1b[0m"


def paint_state(state: str, stream: TextIO) -> str:
    """A state in its colour."""
    return paint(state, STATE_COLOURS.get(state, ""), stream)


def print_json(data: Any, indent: Optional[int] = 2) -> None:
    """One JSON document on standard output; on one line without ``indent``."""
    separators = None if indent else (",", ":")
    text = json.dumps(data, indent=indent, separators=separators, default=str)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def line(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """One line for a person, beside the data."""
    sys.stderr.write(f"tony: {text}\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """The same, for something that may be amiss."""
    sys.stderr.write(f"tony: {paint('warning', 'yellow', sys.stderr)}: {text}\n")
    sys.stderr.flush()


def safe(text: str) -> str:
    """Somebody else's text without what would drive a terminal; tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() or mark == "\t" else f"\\x{ord(mark):02x}" for mark in text
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output: rich's on a terminal, aligned columns elsewhere."""
    if on_terminal(sys.stdout):
        _rich_table(columns, rows)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        line("  ".join(cells).rstrip())


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        made.add_row(*(Text(cell, STATE_COLOURS.get(cell, "")) for cell in row))
    Console(file=sys.stdout, highlight=False).print(made)


def duration(seconds: Optional[float]) -> str:
    """``4.2 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def moment(at: Optional[float]) -> str:
    """A time for a person, in their own time zone."""
    if not at:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def percent(part: float) -> str:
    """``42 %``."""
    return f"{100 * min(1.0, max(0.0, part)):.0f} %"


def number(value: float) -> str:
    """A metric, short."""
    return f"{value:.4g}"


def pairs(values: Mapping[str, float], most: int = 3) -> str:
    """Some metrics on one line."""
    shown: List[str] = [f"{name} {number(value)}" for name, value in list(values.items())[:most]]
    return ", ".join(shown)


def silence() -> None:
    """Nobody reads any more what we say: let it go nowhere from now on."""
    for handle in (1, 2):
        if handle == 1 or os.isatty(handle):
            empty = os.open(os.devnull, os.O_WRONLY)
            os.dup2(empty, handle)
            os.close(empty)
