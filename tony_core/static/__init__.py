"""Style and script of every page: a job's own, which has them inside, and the portal's."""

from __future__ import annotations

import os

STYLE, SCRIPT = "style.css", "page.js"


def read_asset(name: str) -> str:
    """The text of one of the files."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    with open(path, encoding="utf-8") as stream:
        return stream.read()
