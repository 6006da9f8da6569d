"""Durations in words: rounded in messages, of one shape in tables and pages."""

from __future__ import annotations

from typing import Optional

from tony_core.jsontext import is_number


def describe_duration(seconds: float) -> str:
    """A duration in the largest two units: ``6 days 23 h``, ``59 min``, ``7 s``."""
    left = int(seconds + 0.5)
    days, left = divmod(left, 86400)
    hours, left = divmod(left, 3600)
    minutes, rest = divmod(left, 60)
    named = [
        f"{days} day" + ("s" if days != 1 else "") if days else "",
        f"{hours} h" if hours else "",
        f"{minutes} min" if minutes else "",
        f"{rest} s" if rest else "",
    ]
    first = next((at for at, text in enumerate(named) if text), 3)
    return " ".join(text for text in named[first : first + 2] if text) or "0 s"


def show_duration(seconds: Optional[float]) -> str:
    """``4.2 s``, ``12 min 03 s``, ``5 h 20 min``, ``3 d 04 h``; empty where it is not known.

    ``length`` in ``static/page.js`` shows the same.
    """
    if not is_number(seconds):
        return ""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
