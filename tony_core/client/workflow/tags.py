"""How a task finds the applications that earlier tries of it have submitted: by their tags.

A task that dies between a submit and the moment when it stores the job's id leaves a job that no
record names. So an adapter puts tags that name the task on each job before it submits it. The next
try looks for these tags, continues one application, and ends the others before it submits another.
"""

from __future__ import annotations

import re
from typing import Callable, Iterable, NamedTuple, Optional, Tuple

from tony_core.schedulers.port import AppState, AppStatus

MOST_TAGS, LONGEST_TAG = 10, 100
"""What YARN keeps: ten tags of a hundred ASCII characters, in lower case."""

_PRINTABLE = re.compile(r"[!-+\--~]")  # printable ASCII without a blank or comma


def printable(text: str) -> str:
    """Replace each character that YARN takes in no tag by ``_``."""
    return "".join(mark if _PRINTABLE.fullmatch(mark) else "_" for mark in text)


class Predecessors(NamedTuple):
    """The applications that a new try of a task finds."""

    reusable: Optional[AppStatus] = None  # running, or else succeeded
    stale: Tuple[AppStatus, ...] = ()  # running, and to be ended first


def choose_predecessor(
    found: Iterable[AppStatus],
    is_reusable: Callable[[AppStatus], bool],
    accept_succeeded: bool = True,
) -> Predecessors:
    """Decide which of a task's applications, newest first, the new try continues.

    That is the newest running one that ``is_reusable``; two cannot run at once unless a clock or a
    cluster errs. Without one it is the newest that succeeded: its try may have died before it could
    return the result.
    """
    found = list(found)
    running = [status for status in found if not status.state.ended]
    done = [status for status in found if status.state is AppState.SUCCEEDED]
    candidates = filter(is_reusable, [*running, *(done if accept_succeeded else ())])
    reusable = next(candidates, None)
    stale = tuple(status for status in running if status is not reusable)
    return Predecessors(reusable, stale)
