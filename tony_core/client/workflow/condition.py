"""A condition on an application that a task waits for, and whether it is met. Pure.

An application is named by its id, or searched by a tag or its name: then it is the newest one that
carries it, and one that does not exist yet is waited for. Any user can give a job any tag and name,
so a search finds the caller's own applications, unless the condition names another user.

The condition is a state, or the value of a metric that the job reports. A job that has ended
otherwise can never meet it: then the condition is *missed*, and the wait ends.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

BEFORE_THE_END = ("SUBMITTED", "ACCEPTED", "RUNNING")
ENDS = ("SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT")
ENDED = "ENDED"
"""Any of the ends."""
STATES = (*BEFORE_THE_END, *ENDS, ENDED)
ANY_USER = "*"
_ORDER = (*BEFORE_THE_END, "SUCCEEDED")

WAITING, REACHED, MISSED = "waiting", "reached", "missed"


class ConditionResult(NamedTuple):
    """What one check found: ``text`` is for the log, ``found`` is what the task returns."""

    verdict: str
    text: str
    found: Optional[Mapping[str, Any]] = None


class Condition(NamedTuple):
    """The application, and the state or the metric that is waited for."""

    application_id: Optional[str] = None
    tag: Optional[str] = None
    name: Optional[str] = None
    submitted_after: Optional[float] = None  # seconds since the epoch
    states: Tuple[str, ...] = ("SUCCEEDED",)
    metric: Optional[str] = None
    above: Optional[float] = None
    below: Optional[float] = None
    user: Optional[str] = None  # whose, for a tag or a name: by default the caller's; or ANY_USER

    def to_dict(self) -> Dict[str, Any]:
        """Plain JSON, as a trigger's argument."""
        return {**self._asdict(), "states": list(self.states)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Condition:
        """The condition that :meth:`to_dict` wrote."""
        return cls(**{**data, "states": tuple(data["states"])})

    @property
    def application(self) -> str:
        """The application, for a message."""
        if self.application_id:
            return self.application_id
        return f"a job with the tag {self.tag}" if self.tag else f"a job of the name {self.name}"

    @property
    def goal(self) -> str:
        """The state or the metric, for a message."""
        if self.metric is None:
            return f"to be {' or '.join(self.states)}"
        side = f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
        return f"to report {self.metric} {side}"

    def problems(self) -> List[str]:
        """All that is wrong with the condition."""
        wrong = []
        named = [one for one in (self.application_id, self.tag, self.name) if one]
        if len(named) != 1:
            wrong.append("name the application by one of application_id, tag and name")
        if self.application_id and self.submitted_after is not None:
            wrong.append("submitted_after is for a tag or a name: an id names one application")
        if self.application_id and self.user:
            wrong.append("user is for a tag or a name: an id names one application")
        for state in self.states:
            if state not in STATES:
                wrong.append(f"{state!r} is not a state (expected one of {', '.join(STATES)})")
        if not self.states:
            wrong.append("state is empty")
        bounds = [one for one in (self.above, self.below) if one is not None]
        if self.metric is not None and len(bounds) != 1:
            wrong.append(f"the metric {self.metric} needs a bound: either above= or below=")
        if self.metric is None and bounds:
            wrong.append("above and below need a metric")
        return wrong

    def search(self, statuses: Iterable[Any], own: str = "") -> Optional[Any]:
        """The application, in a list of all that the scheduler knows.

        ``own`` is the caller's user; empty where the scheduler knows no other.
        """
        owner = ANY_USER if self.application_id else self.user or own
        matching = [status for status in statuses if self._matches(status)]
        return _newest(one for one in matching if owner in ("", ANY_USER) or one.user == owner)

    def explain_missing(self, statuses: Iterable[Any], own: str) -> str:
        """Why a search has found nothing, for the log; names an application of another user."""
        owner = self.user or own
        if owner in ("", ANY_USER):
            return self._missing()
        other = _newest(status for status in statuses if self._matches(status))
        counts = (
            f"; {other.app_id} is {other.user}'s, and counts with user={other.user!r}"
            if other is not None
            else ""
        )
        return f"{self.application} of the user {owner} does not exist yet{counts}"

    def _matches(self, status: Any) -> bool:
        if self.application_id:
            return bool(status.app_id == self.application_id)
        if self.submitted_after is not None and status.submitted < self.submitted_after:
            return False
        if self.tag:  # YARN lower-cases tags
            return self.tag.lower() in (tag.lower() for tag in status.tags)
        return bool(status.name == self.name)

    def check(self, status: Optional[Any], metrics: Mapping[str, float]) -> ConditionResult:
        """Whether the condition is met; ``metrics`` matter only where it names one."""
        if status is None:
            return ConditionResult(WAITING, self._missing())
        state = status.state.value
        found: Dict[str, Any] = {"application_id": status.app_id, "state": state}
        if self.metric is not None:
            return self._check_metric(status, metrics.get(self.metric), found)
        if self._accepts(state):
            return ConditionResult(REACHED, f"{status.app_id} is {state}", found)
        if state in ENDS:
            return ConditionResult(MISSED, self._missed(status))
        return ConditionResult(WAITING, f"{status.app_id} is {state}")

    def _accepts(self, state: str) -> bool:
        """Whether a state is one of the wanted ones, or later than one of them."""
        if state in self.states or (ENDED in self.states and state in ENDS):
            return True
        wanted = [_ORDER.index(one) for one in self.states if one in BEFORE_THE_END]
        return state in _ORDER and any(_ORDER.index(state) >= one for one in wanted)

    def _check_metric(
        self, status: Any, value: Optional[float], found: Dict[str, Any]
    ) -> ConditionResult:
        if value is not None:
            met = value > self.above if self.above is not None else value < (self.below or 0.0)
            if met:
                text = f"{status.app_id} reports {self.metric}={value:g}"
                return ConditionResult(
                    REACHED, text, {**found, "metric": self.metric, "value": value}
                )
        last = "nothing of it" if value is None else f"{value:g}"
        if status.state.value in ENDS:
            return ConditionResult(MISSED, f"{self._missed(status)}; it reported {last}")
        return ConditionResult(
            WAITING, f"{status.app_id} is {status.state.value}; {self.metric}: {last}"
        )

    def _missing(self) -> str:
        return f"{self.application} does not exist yet"

    def _missed(self, status: Any) -> str:
        lines = status.diagnostics.strip().splitlines()
        cause = f" ({lines[0]})" if lines else ""
        return (
            f"{status.app_id} has ended as {status.state.value}{cause}, and was waited for"
            f" {self.goal}"
        )


def _newest(found: Iterable[Any]) -> Optional[Any]:
    return max(found, key=lambda status: status.submitted, default=None)
