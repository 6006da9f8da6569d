"""Which task of a gang holds the others up: pure, from what is known of each.

In a collective every rank waits for the one that does not join, so all of them stand still. The
one that lags is, by the first of these that separates any of those that stand still:

* the lowest last step, where the steps differ;
* a stack that is in no collective, where others are in one;
* in three or more tasks, the odd place in the code;
* in three or more tasks, the odd use of processors: idle where the others spin (a rank that waits
  for input, while NCCL spins), or spinning where the others are idle (an endless loop, while gloo
  waits).

Else none is named: all stand at the same step.

*Silent* tasks report no step, as in the many programs of which only rank 0 does: they log or
compute, and whether they get further is not known. Their stacks are compared with those of the ones
that stand still. One of them lags where its own is in no collective and one that stands still waits
in one: it has not joined for as long as a stall takes. Where it is only at an odd place in the code
it *may* lag: the others may stand at the same place by chance, if they do not wait for it.

A task whose steps go on is never named, however far behind it is: in training without a collective
it is well.
"""

from __future__ import annotations

from collections import Counter
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

BUSY_PERCENT = 50.0  # of a core: it spins
IDLE_PERCENT = 10.0


class StandingTask(NamedTuple):
    """A task of a gang of which some stand still."""

    name: str
    step: Optional[int] = None
    is_still: bool = True
    has_stacks: bool = False  # known though it moves
    cpu_percent: float = 0.0
    frame: str = ""
    in_collective: Optional[bool] = None

    @property
    def is_silent(self) -> bool:
        """Whether its stacks are all that tells whether it waits."""
        return self.has_stacks and not self.is_still and self.step is None


class Lag(NamedTuple):
    """The tasks that lag, and how that shows; none: all are alike."""

    names: Tuple[str, ...]
    why: str
    is_certain: bool = True  # enough to end its program


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
    compared = [task for task in tasks if task.is_still or task.is_silent]
    outside = [task for task in compared if task.in_collective is False]
    inside = [task for task in compared if task.in_collective]
    if any(task.is_still for task in outside):
        outside = [task for task in outside if task.is_still]
    elif not any(task.is_still for task in inside):
        outside = []
    if outside and len(outside) <= len(inside):
        where = f" (it stands in {outside[0].frame})" if outside[0].frame else ""
        return Lag(_names(outside), f"it is not in the collective that the others wait in{where}")
    odd, others = _odd_ones(still, _frame)
    if not odd:
        odd, others = _odd_ones([task for task in compared if task.frame], _frame)
    if odd:
        why = f"it stands in {odd[0].frame}, the others in {others}"
        return Lag(_names(odd), why, odd[0].is_still)
    odd = _odd_ones(still, _activity)[0] or _odd_ones(compared, _activity)[0]
    if odd and odd[0].is_still:
        is_idle = _activity(odd[0]) == "idle"
        used = f"{odd[0].cpu_percent:.0f} % of a core"
        why = "it is idle" if is_idle else "it computes"
        return Lag(_names(odd), f"{why} ({used}), the others {'spin' if is_idle else 'wait'}")
    unknown = sum(not (task.is_still or task.is_silent) and task.step is None for task in tasks)
    if unknown:
        return Lag((), f"{unknown} of the others report no step, and log or compute")
    if len(compared) < len(tasks):
        return Lag((), "the others go on")
    if len(still) < len(compared):
        return Lag((), "the others report no step, and their stacks do not show which one lags")
    step = f" at step {steps[0]}" if steps and len(steps) == len(still) else ""
    return Lag((), f"all stand{step}, and none differs from the others" if len(tasks) > 1 else "")


def _names(tasks: Sequence[StandingTask]) -> Tuple[str, ...]:
    return tuple(task.name for task in tasks)


def _frame(task: StandingTask) -> Optional[str]:
    return task.frame or None


def _activity(task: StandingTask) -> Optional[str]:
    if task.cpu_percent >= BUSY_PERCENT:
        return "busy"
    return "idle" if task.cpu_percent < IDLE_PERCENT else None


def _odd_ones(
    tasks: Sequence[StandingTask], key: Callable[[StandingTask], Optional[str]]
) -> Tuple[List[StandingTask], str]:
    """The few that differ from all others, and what these share; none where it is not so clear.

    Of those that differ the ones that stand still; and none that waits in a collective which others
    are not in.
    """
    keys = [key(task) for task in tasks]
    if len(tasks) < 3 or None in keys:
        return [], ""
    (common, count), *rest = Counter(keys).most_common()
    if len(rest) != 1 or 2 * count <= len(tasks):
        return [], ""
    odd = [task for task, each in zip(tasks, keys) if each != common]
    waits = any(t.in_collective for t in odd) and any(t.in_collective is False for t in tasks)
    return [] if waits else [task for task in odd if task.is_still] or odd, common or ""
