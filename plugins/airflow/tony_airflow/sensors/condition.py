"""Which application is waited for, and for what. Pure: the sensor and its trigger both ask here.

An application is named by its id, or looked for by a tag or its name: then it is the newest one
that carries it, and one that is not there yet is waited for. What is waited for is a state, or a
metric that the job reports. A job that has ended otherwise will never get there: that is *missed*,
and nothing more is waited for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

BEFORE_THE_END = ("SUBMITTED", "ACCEPTED", "RUNNING")
ENDS = ("SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT")
ENDED = "ENDED"
"""Any of the ends."""
STATES = (*BEFORE_THE_END, *ENDS, ENDED)

WAITING, REACHED, MISSED = "waiting", "reached", "missed"


@dataclass(frozen=True)
class Answer:
    """What came of one look: ``said`` is for people, ``found`` is what the task gives."""

    verdict: str
    said: str
    found: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class Condition:
    """See the module."""

    application_id: Optional[str] = None
    tag: Optional[str] = None
    name: Optional[str] = None
    submitted_after: Optional[float] = None  # seconds since the epoch
    states: Tuple[str, ...] = ("SUCCEEDED",)
    metric: Optional[str] = None
    above: Optional[float] = None
    below: Optional[float] = None

    def to_dict(self) -> Dict[str, Any]:
        """Plain JSON: what a trigger carries."""
        return {**asdict(self), "states": list(self.states)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Condition:
        """What :meth:`to_dict` gave."""
        return cls(**{**data, "states": tuple(data["states"])})

    # ------------------------------------------------------------------ saying

    @property
    def which(self) -> str:
        """The application, for a person."""
        if self.application_id:
            return self.application_id
        return f"a job with the tag {self.tag}" if self.tag else f"a job of the name {self.name}"

    @property
    def what(self) -> str:
        """What is waited for, for a person."""
        if self.metric is None:
            return f"to be {' or '.join(self.states)}"
        side = f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
        return f"to report {self.metric} {side}"

    # ------------------------------------------------------------------ looking

    def problems(self) -> List[str]:
        """What is wrong with it, all at once."""
        wrong = []
        named = [one for one in (self.application_id, self.tag, self.name) if one]
        if len(named) != 1:
            wrong.append("name the application by one of application_id, tag and name")
        if self.application_id and self.submitted_after is not None:
            wrong.append("submitted_after is for a tag or a name: an id names one application")
        for state in self.states:
            if state not in STATES:
                wrong.append(f"{state!r} is no state (there are {', '.join(STATES)})")
        if not self.states:
            wrong.append("no state is waited for")
        bounds = [one for one in (self.above, self.below) if one is not None]
        if self.metric is not None and len(bounds) != 1:
            wrong.append(f"say whether {self.metric} is to be above= or below= a value")
        if self.metric is None and bounds:
            wrong.append("above and below are for a metric: name it")
        return wrong

    def pick(self, statuses: Iterable[Any]) -> Optional[Any]:
        """The application that is meant, of all that the scheduler knows; None without one."""
        meant = [status for status in statuses if self._means(status)]
        return max(meant, key=lambda status: status.submitted, default=None)

    def _means(self, status: Any) -> bool:
        if self.application_id:
            return bool(status.app_id == self.application_id)
        if self.submitted_after is not None and status.submitted < self.submitted_after:
            return False
        if self.tag:  # YARN keeps them in small letters
            return self.tag.lower() in (tag.lower() for tag in status.tags)
        return bool(status.name == self.name)

    def judge(self, status: Optional[Any], metrics: Mapping[str, float]) -> Answer:
        """Whether it is there. ``metrics`` matter only where one is waited for."""
        if status is None:
            return Answer(WAITING, f"{self.which} is not there yet")
        state = status.state.value
        found: Dict[str, Any] = {"application_id": status.app_id, "state": state}
        if self.metric is not None:
            return self._judge_metric(status, metrics.get(self.metric), found)
        passed = state in self.states or (ENDED in self.states and state in ENDS)
        for wanted in self.states:
            if wanted in BEFORE_THE_END and state in (*BEFORE_THE_END, "SUCCEEDED"):
                order = (*BEFORE_THE_END, "SUCCEEDED")
                passed = passed or order.index(state) >= order.index(wanted)
        if passed:
            return Answer(REACHED, f"{status.app_id} is {state}", found)
        if state in ENDS:
            return Answer(MISSED, self._missed(status))
        return Answer(WAITING, f"{status.app_id} is {state}")

    def _judge_metric(self, status: Any, value: Optional[float], found: Dict[str, Any]) -> Answer:
        if value is not None:
            there = value > self.above if self.above is not None else value < (self.below or 0.0)
            if there:
                said = f"{status.app_id} reports {self.metric}={value:g}"
                return Answer(REACHED, said, {**found, "metric": self.metric, "value": value})
        last = "nothing of it" if value is None else f"{value:g}"
        if status.state.value in ENDS:
            return Answer(MISSED, f"{self._missed(status)}; it reported {last}")
        return Answer(WAITING, f"{status.app_id} is {status.state.value}; {self.metric}: {last}")

    def _missed(self, status: Any) -> str:
        told = status.diagnostics.strip().splitlines()
        said = f" ({told[0]})" if told else ""
        return (
            f"{status.app_id} has ended as {status.state.value}{said}, and was waited for"
            f" {self.what}"
        )
