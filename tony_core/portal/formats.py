"""Numbers, times and texts as the portal's pages show them. Pure."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Optional

from markupsafe import Markup, escape

from tony_core.durations import show_duration
from tony_core.jsontext import is_number

MOST_MARKS = 2000  # of one text
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def show_moment(at: Optional[float], only: str = "") -> Markup:
    """A time as this machine's clock shows it; a script makes it the reader's.

    ``only``: ``clock`` or ``minute``.
    """
    if not is_number(at) or not 0 < at < 1e11:
        return Markup()
    shape = {"clock": "%H:%M:%S", "minute": "%Y-%m-%d %H:%M"}.get(only, "%Y-%m-%d %H:%M:%S")
    text = time.strftime(shape, time.localtime(at))
    exact = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return Markup('<time datetime="{}" data-only="{}">{}</time>').format(exact, only, text)


def show_number(value: Optional[float], digits: int = 1) -> str:
    """``0``, ``0.25``, ``12.3``, ``45 300``."""
    if not is_number(value):
        return ""
    if value == 0:
        return "0"
    if abs(value) < 1:
        return f"{value:.2g}"
    if abs(value) < 100:
        return f"{value:.{digits}f}".removesuffix("." + "0" * digits)
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def show_amount(value: Optional[float], digits: int = 1) -> str:
    """An amount of hours or of jobs: ``< 0.01`` where it is next to nothing."""
    if is_number(value) and 0 < value < 0.01:
        return "< 0.01"
    return show_number(value, digits)


def show_running(seconds: Optional[float]) -> Markup:
    """A duration that the page's script lets go on."""
    if not is_number(seconds):
        return Markup()
    text = show_duration(seconds)
    return Markup('<span data-ticks="{}">{}</span>').format(f"{seconds:.0f}", text)


def show_bytes(size: float) -> str:
    """``512 B``, ``1.5 kB``, ``20 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def show_state(state: Any) -> Markup:
    """A state as a mark with its name."""
    text = str(state) or "UNKNOWN"
    name = re.sub(r"[^a-z_]", "", text.lower())
    return Markup('<span class="state s-{}">{}</span>').format(name, text)


def show_json(value: Any) -> str:
    """A value of any shape, a field on each line; empty where there is none."""
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def plain_text(text: str) -> str:
    """A log as a page shows it: without a terminal's commands."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def mark_words(text: str, words: str) -> Markup:
    """A text with the places marked where ``words`` stand in it, the first :data:`MOST_MARKS`."""
    if not words:
        return escape(text)
    parts = re.split(f"({re.escape(words)})", text, maxsplit=MOST_MARKS, flags=re.IGNORECASE)
    parts = [str(escape(part)) for part in parts]
    parts[1::2] = [f"<mark>{part}</mark>" for part in parts[1::2]]
    return Markup("".join(parts))  # noqa: S704 - each part is escaped
