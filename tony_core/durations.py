"""Durations in words, for messages of clients and masters."""

from __future__ import annotations


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
