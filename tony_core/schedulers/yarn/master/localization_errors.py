"""Why a node could not bring a container's files, in one sentence that says what to do. Pure.

YARN says it with a Java stack trace behind: a file is brought only as it was when it was
submitted, and as the user that submitted it.
"""

from __future__ import annotations

import re
from typing import Optional

from tony_core.files.location import remedy
from tony_core.files.webhdfs.answers import parse_denial

_CHANGED = re.compile(r"Resource (\S+) changed on src filesystem")
_GONE = re.compile(r"File does not exist: (\S+)")
_OBJECTS = "/store/objects/"


def why(text: str) -> Optional[str]:
    """In our words, where we have some."""
    changed = _CHANGED.search(text)
    if changed:
        return _changed(changed[1])
    gone = _GONE.search(text)
    if gone:
        return f"{gone[1]} was removed after the submit: submit again"
    denied = parse_denial(text)
    if denied:
        return (
            f"the nodes fetch files as {denied.user}, who may not enter or read {denied.path}:"
            f" {denied.owner}, whose it is, can change its mode ({denied.mode})"
        )
    return None


def _changed(location: str) -> str:
    root, ours, _ = location.partition(_OBJECTS)
    if not ours:
        return f"{location} was written to after the submit: submit again"
    return (
        f"the copy that was staged at {location} is damaged: it was written to after the submit;"
        f" {remedy(root)}"
    )
