"""Which of the tasks that stand still holds the others up: pure, from what is known of each.

In a collective every rank waits for the one that does not join, so all of them stand still. The
one that lags is, by the first of these that separates any of those that stand still:

* the lowest last step, where the steps differ;
* a stack that is in no collective, where others are in one;
* in three or more tasks, the odd place in the code;
* in three or more tasks, the odd use of processors: idle where the others spin (a rank that waits
  for input, while NCCL spins), or spinning where the others are idle (an endless loop, while gloo
  waits).

Else none is named: all stand at the same step. A task that moves is never named: in training
without a collective it may be behind and well.
"""

from __future__ import annotations

from collections import Counter
from typing import Callable, Hashable, List, NamedTuple, Optional, Sequence, Tuple

BUSY_PERCENT = 50.0  # of a core: it spins
IDLE_PERCENT = 10.0


class StandingTask(NamedTuple):
    """A task of a gang of which some stand still."""

    name: str
    step: Optional[int] = None
    is_still: bool = True
    cpu_percent: float = 0.0
    frame: str = ""
    in_collective: Optional[bool] = None


class Lag(NamedTuple):
    """The tasks that lag, and how that shows; none: all are alike."""

    names: Tuple[str, ...]
    why: str


def find_lagging(tasks: Sequence[StandingTask]) -> Lag:
    """Name those that lag among the tasks of a gang."""
    still = [task for task in tasks if task.is_still]
    steps = [task.step for task in still if task.step is not None]
    if steps and min(steps) < max(steps):
        low = min(steps)
        names = tuple(task.name for task in still if task.step == low)
        others_at = [step for step in steps if step > low]
        others = (
            f"{min(others_at)}"
            if min(others_at) == max(others_at)
            else f"{min(others_at)} to {max(others_at)}"
        )
        return Lag(names, f"its last step is {low}, the others' {others}")
    outside = [task for task in still if task.in_collective is False]
    inside = [task for task in still if task.in_collective]
    if outside and len(outside) < len(inside) + 1 and inside:
        where = f" (it stands in {outside[0].frame})" if outside[0].frame else ""
        return Lag(_names(outside), f"it is not in the collective that the others wait in{where}")
    odd = _odd_ones(still, lambda task: task.frame or None)
    if odd:
        others = next(task.frame for task in still if task not in odd)
        return Lag(_names(odd), f"it stands in {odd[0].frame}, the others in {others}")
    odd = _odd_ones(still, _activity)
    if odd:
        is_idle = _activity(odd[0]) == "idle"
        used = f"{odd[0].cpu_percent:.0f} % of a core"
        why = "it is idle" if is_idle else "it computes"
        return Lag(_names(odd), f"{why} ({used}), the others {'spin' if is_idle else 'wait'}")
    moving = [task for task in tasks if not task.is_still]
    if moving:
        unknown = sum(task.step is None for task in moving)
        why = f"{unknown} of the others report no step, and log or compute" if unknown else ""
        return Lag((), why or "the others go on")
    step = f" at step {steps[0]}" if steps else ""
    return Lag((), f"all stand{step}, and none differs from the others" if len(tasks) > 1 else "")


def _names(tasks: Sequence[StandingTask]) -> Tuple[str, ...]:
    return tuple(task.name for task in tasks)


def _activity(task: StandingTask) -> Optional[str]:
    if task.cpu_percent >= BUSY_PERCENT:
        return "busy"
    return "idle" if task.cpu_percent < IDLE_PERCENT else None


def _odd_ones(
    tasks: Sequence[StandingTask], key: Callable[[StandingTask], Optional[Hashable]]
) -> List[StandingTask]:
    """The few that differ from all others, which are alike; none where that is not so clear."""
    keys = [key(task) for task in tasks]
    if len(tasks) < 3 or None in keys:
        return []
    (common, count), *rest = Counter(keys).most_common()
    if len(rest) != 1 or 2 * count <= len(tasks):
        return []
    return [task for task, each in zip(tasks, keys) if each != common]
