"""Prints: data on standard output, messages for a person on standard error when the data is
for a program; colour and rich only on a terminal that wants them.

Names, diagnostics, tags and log lines come from jobs, clusters and other users. What would drive a
terminal (control characters, escape sequences, marks that turn the direction of writing) is
shown as ``\\x1b`` and the like: everything that the verbs print goes through this module. Only
:func:`print_json`, whose escapes are exact, and :func:`raw` pass text as it is.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Pattern, Sequence, TextIO

from tony_core.durations import show_duration
from tony_core.jsontext import write_value

if TYPE_CHECKING:
    from tony_core.schedulers.port import LifetimeLimit

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
    return paint(state, STATE_COLOURS.get(state, ""), stream)


def print_json(data: Any, indent: Optional[int] = 2) -> None:
    """One JSON document on standard output; on one line without ``indent``."""
    sys.stdout.write(write_value(data, indent or None) + "\n")
    sys.stdout.flush()


def application_data(app_id: str, limit: Optional[LifetimeLimit] = None) -> Dict[str, Any]:
    """A started application, for :func:`print_json`."""
    data: Dict[str, Any] = {"type": "application", "app_id": app_id}
    return data if limit is None else {**data, "tokens_end": limit.ends}


def line(text: str = "") -> None:
    """Print one line on standard output."""
    sys.stdout.write(_keeping(_PAINTED, text) + "\n")


def note(text: str) -> None:
    """Print one line for a person, beside the data."""
    print_error(f"tony: {text}\n")


def warn(text: str) -> None:
    """Print a warning for a person."""
    note(f"{paint('warning', 'yellow', sys.stderr)}: {text}")


def print_error(text: str) -> None:
    """Print text on standard error, with no end of line of its own."""
    sys.stderr.write(_keeping(_PAINTED, text))
    sys.stderr.flush()


def raw(text: str) -> None:
    """Print text on standard output unchanged: for what a program reads."""
    sys.stdout.write(text)


def safe(text: str) -> str:
    """Text without what would drive a terminal, on one line; tabs stay."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() or mark == "\t" else _escaped(mark) for mark in text)


def log_line(text: str, colours: bool) -> str:
    """A program's line as a terminal would show it in the end, which it drives no further.

    Colours stay where they are welcome, and end with the line. Of what a carriage return
    overwrites (a progress bar) the last is shown.
    """
    shown = text.rstrip("\r").rpartition("\r")[2]
    if "\x1b" not in shown:
        return safe(shown)
    kept = _keeping(_COLOURED, shown if colours else _COLOURED.sub("", shown))
    return f"{kept}\x1b[0m" if colours and _COLOURED.search(shown) else kept


def _keeping(kept: Pattern[str], text: str) -> str:
    """The text without what would drive a terminal, but with these sequences and line feeds."""
    if text.isprintable():
        return text
    out, at = [], 0
    for match in kept.finditer(text):
        out += [safe(text[at : match.start()]), match[0]]
        at = match.end()
    return "".join([*out, safe(text[at:])])


def _escaped(mark: str) -> str:
    number = ord(mark)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


#: What :func:`paint` writes, and no other sequence.
_PAINTED = re.compile(
    rf"\x1b\[(?:0|{'|'.join(sorted({*COLOURS.values(), *TASK_COLOURS}))})m|\n", re.ASCII
)
_COLOURED = re.compile(r"\x1b\[[0-9;:]{0,60}m", re.ASCII)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output: rich's on a terminal, aligned columns elsewhere."""
    rows = [[safe(cell) for cell in row] for row in rows]
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
    """A duration in a table; ``-`` where it is not known."""
    return show_duration(seconds) or "-"


def moment(at: Optional[float]) -> str:
    """A time for a person, in their own time zone."""
    if not at:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, OSError, ValueError):
        return "-"  # a time that no calendar has: damage


def percent(part: float) -> str:
    """``42 %``."""
    return f"{100 * min(1.0, max(0.0, part)):.0f} %"


def number(value: float) -> str:
    return f"{value:.4g}"


def pairs(values: Mapping[str, float], most: int = 3) -> str:
    shown: List[str] = [f"{name} {number(value)}" for name, value in list(values.items())[:most]]
    return ", ".join(shown)


def discard_output() -> None:
    """Discard all output from now on: its reader went away."""
    for handle in (1, 2):
        if handle == 1 or os.isatty(handle):
            empty = os.open(os.devnull, os.O_WRONLY)
            os.dup2(empty, handle)
            os.close(empty)
