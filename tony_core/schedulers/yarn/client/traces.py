"""Java's stack traces, which say nothing to who runs Python. Pure."""

from __future__ import annotations

import re
from typing import Collection

_FRAME = re.compile(r"\s+at [\w$.]|\s+\.\.\. \d+ more")
_CLASS = re.compile(r"^(?:Caused by: )?(?:[a-z]\w*\.)+[A-Z][\w$]*: ")


def is_trace(line: str, said: Collection[str]) -> bool:
    """Whether a line adds nothing to what is said: a frame, or the same with its class."""
    return bool(_FRAME.match(line)) or bool(_CLASS.match(line) and _CLASS.sub("", line) in said)
