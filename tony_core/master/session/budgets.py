"""How often a job may be tried again, and after what delay.

Two budgets, since two parties fail. The **user's** (``tony.am.retry-count``) heals when the
program gets further than any session before, in what it reports or in what it saves
(``tony.checkpoints``): a program that always dies at the same step must end, however long
that takes. The **system's**
(``tony.task.max-infrastructure-failures``) heals after ten healthy minutes. The first
restart is immediate; those that follow back off until a budget heals.

The same role failing by its own fault with the same code and last line of stderr within 30 s of
its start, twice running, is not tried again: a third time would be no different. What says nothing
about the program (``verdict.is_comparable``) is never compared.

A task that is restarted within its session has a budget of its own (``tony.<role>.max-restarts``),
which pays for every failure and does not heal; its delays and the rule on the same failure are
those of sessions.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from tony_core.exit_causes import Fault

BACKOFF_FIRST_S = 1.0
BACKOFF_CAP_S = 60.0


FailureSignature = Tuple[str, int, str]  # whose, exit code, last line of stderr


def restart_delay(count: int, jitter: float) -> float:
    """The delay before a restart that ``count`` others went before; ``jitter`` in 0..1."""
    if count == 0:
        return 0.0
    delay = min(BACKOFF_CAP_S, BACKOFF_FIRST_S * 2.0 ** min(count - 1, 30))
    return delay * (0.5 + jitter / 2)


def parse_signature(data: Optional[Sequence[Any]]) -> Optional[FailureSignature]:
    """Read one from the journal's JSON."""
    return (str(data[0]), int(data[1]), str(data[2])) if data else None


class Budgets:
    """What is left, and what heals it."""

    def __init__(self, user_limit: int, system_limit: int) -> None:
        self.user_limit = user_limit
        self.system_limit = system_limit
        self.times_restored = 0  # how often either budget was
        self.load({})

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over what the journal says."""
        self.user_used = int(data.get("user_used", 0))
        self.system_used = int(data.get("system_used", 0))
        self.restarts_in_row = int(data.get("restarts_in_row", 0))
        #: The best progress (or step) of the sessions before, and the best of this session.
        self.best_progress_before: Optional[float] = data.get("furthest")
        self.best_progress: Optional[float] = data.get("reached")
        #: The same two of checkpoints, by their step.
        self.best_checkpoint_before: Optional[int] = data.get("furthest_saved")
        self.best_checkpoint: Optional[int] = data.get("saved")
        self.last_signature = parse_signature(data.get("last_quick"))

    @property
    def user_left(self) -> int:
        """Restarts that the user's own failures still have."""
        return self.user_limit - self.user_used

    @property
    def system_left(self) -> int:
        """Restarts that the system's failures still have."""
        return self.system_limit - self.system_used

    def note_progress(self, value: float) -> bool:
        """Keep how far the program is; return whether that restored the user's budget."""
        if self.best_progress is None or value > self.best_progress:
            self.best_progress = value
        return value > (self.best_progress_before or 0.0) and self._restore_user_budget()

    def note_checkpoint(self, step: int) -> bool:
        """Keep a saved checkpoint; return whether that restored the user's budget."""
        if self.best_checkpoint is None or step > self.best_checkpoint:
            self.best_checkpoint = step
        return (
            self.best_checkpoint_before is None or step > self.best_checkpoint_before
        ) and self._restore_user_budget()

    def _restore_user_budget(self) -> bool:
        """Restore the user's budget; return whether any of it was used."""
        restored = self.user_used > 0
        if restored:
            self.times_restored += 1
            self.user_used = 0
            self.restarts_in_row = 0
            self.last_signature = None
        return restored

    def restore_system_budget(self) -> bool:
        """Restore the system's budget; return whether any of it was used."""
        restored = self.system_used > 0
        self.times_restored += restored
        self.system_used = 0
        self.restarts_in_row = 0
        return restored

    def repeats_last(self, failure: Optional[FailureSignature]) -> bool:
        """Keep a session's failure; return whether it repeats the one before."""
        before, self.last_signature = self.last_signature, failure
        return before is not None and before == self.last_signature

    def charge(self, fault: Fault) -> bool:
        """Charge one restart to the party at fault; return False where none is left."""
        if fault is Fault.USER:
            if self.user_left <= 0:
                return False
            self.user_used += 1
        else:
            if self.system_left <= 0:
                return False
            self.system_used += 1
        if self.best_progress is not None:
            self.best_progress_before = max(
                self.best_progress, self.best_progress_before or self.best_progress
            )
        if self.best_checkpoint is not None:
            self.best_checkpoint_before = max(
                self.best_checkpoint, self.best_checkpoint_before or self.best_checkpoint
            )
        self.best_progress = self.best_checkpoint = None
        return True

    def backoff(self, jitter: float) -> float:
        """The delay before the restart just charged; ``jitter`` in 0..1 spreads it."""
        self.restarts_in_row += 1
        return restart_delay(self.restarts_in_row - 1, jitter)

    def to_json(self) -> Dict[str, Any]:
        """For the journal."""
        return {
            "user_used": self.user_used,
            "system_used": self.system_used,
            "restarts_in_row": self.restarts_in_row,
            "furthest": self.best_progress_before,
            "reached": self.best_progress,
            "furthest_saved": self.best_checkpoint_before,
            "saved": self.best_checkpoint,
            "last_quick": list(self.last_signature) if self.last_signature else None,
        }
