"""Another program's text as part of one of our lines.

Standard library only, Python 3.8.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with "?" for each character that would drive a terminal or end the line."""
    return "".join(char if char.isprintable() else "?" for char in text)
