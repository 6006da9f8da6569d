"""A sensor for a job that this DAG has not started.

Parsing a DAG imports this module: what only running needs is imported where it is needed.
"""

from __future__ import annotations

import socket
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Mapping, NoReturn, Optional, Sequence, Union

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from tony_airflow.durations import argument_s
from tony_airflow.sensors.condition import MISSED, REACHED, WAITING, Answer, Condition

if TYPE_CHECKING:
    from tony_airflow.hooks.tony import TonyHook


class TonySensor(BaseSensorOperator):
    """Waits until an application reaches a state, or reports a metric above or below a value.

    It gives ``{"application_id", "state"}``, of a metric also ``"metric"`` and ``"value"``. A job
    that ends otherwise fails the sensor for good: no retry would find it changed.

    :param application_id: which application; or
    :param tag: the newest that carries this tag; or
    :param name: the newest of this name. One that is not there yet is waited for.
    :param submitted_after: of those with the tag or name only what was submitted after this time
        (a datetime, or text as Airflow's ``{{ ts }}``), so that an earlier run's is not taken.
    :param state: one or several of SUBMITTED, ACCEPTED, RUNNING, SUCCEEDED, FAILED, KILLED,
        TIMED_OUT and ENDED, which is any end.
    :param metric: a metric that the program reports by ``tony.report``, instead of a state;
        its last value is looked at, so one that comes back may be overlooked.
    :param above: what the metric is to exceed; or
    :param below: what it is to fall below.
    :param tony_conn_id: the connection that says where the application runs.
    :param scheduler: a scheduler instead of the connection's; ``local`` needs no connection.
    :param deferrable: wait in a triggerer, at the cost of no worker slot. ``poke_interval`` and
        ``timeout`` hold there too; a ``mode`` does not matter.
    :param unreachable_timeout: for how long a cluster that does not answer is asked again. With
        ``mode="reschedule"`` each look is a process of its own, and ``timeout`` alone counts.
    """

    template_fields: Sequence[str] = (
        "application_id",
        "tag",
        "name",
        "submitted_after",
        "state",
        "metric",
        "above",
        "below",
        "tony_conn_id",
        "scheduler",
    )
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        application_id: Optional[str] = None,
        tag: Optional[str] = None,
        name: Optional[str] = None,
        submitted_after: Union[datetime, str, None] = None,
        state: Union[str, Sequence[str]] = "SUCCEEDED",
        metric: Optional[str] = None,
        above: Union[float, str, None] = None,
        below: Union[float, str, None] = None,
        tony_conn_id: str = "tony_default",
        scheduler: Optional[str] = None,
        poke_interval: Union[timedelta, float] = 10.0,
        deferrable: Optional[bool] = None,
        unreachable_timeout: Union[timedelta, float] = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.application_id = application_id
        self.tag = tag
        self.name = name
        self.submitted_after = submitted_after
        self.state = state
        self.metric = metric
        self.above = above
        self.below = below
        self.tony_conn_id = tony_conn_id
        self.scheduler = scheduler
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        self.unreachable_timeout = argument_s("unreachable_timeout", unreachable_timeout)
        self._silent_since: Optional[float] = None
        self._hook: Optional[TonyHook] = None
        self._said = ""

    # ------------------------------------------------------------------ on a worker

    def execute(self, context: Any) -> Any:
        """Airflow's call."""
        condition = self.condition()
        if not self.deferrable:
            try:
                return super().execute(context)
            finally:
                self._close()

        try:
            answer = self._look(condition)
            if answer.verdict == WAITING:
                self._defer(condition)
            self._refuse_missed(answer)
        except AirflowException as error:
            # As Airflow's own execute() does, which is not run here.
            for_good = isinstance(error, AirflowFailException)
            if self.never_fail or (self.soft_fail and for_good):
                raise AirflowSkipException(str(error)) from error
            raise
        finally:
            self._close()
        return answer.found

    def _defer(self, condition: Condition) -> NoReturn:
        from tony_airflow.operators.life import travelling
        from tony_airflow.triggers.sensing import TonySensingTrigger

        self.defer(
            trigger=TonySensingTrigger(
                site=travelling(self._hook_of().site),
                condition=condition.to_dict(),
                poll_interval=max(self.poke_interval, 1.0),
                unreachable_s=self.unreachable_timeout,
                host=socket.gethostname(),
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def poke(self, context: Any) -> Any:
        """One look."""
        answer = self._look(self.condition())
        self._refuse_missed(answer)
        return PokeReturnValue(answer.verdict == REACHED, answer.found)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Airflow's call when the trigger has fired."""
        if event.get("refused"):
            raise AirflowFailException(str(event["refused"]))
        if event.get("error"):
            raise AirflowException(str(event["error"]))
        answer = Answer(str(event["verdict"]), str(event["said"]), event.get("found"))
        self._refuse_missed(answer)
        self.log.info("%s", answer.said)
        return answer.found

    # ------------------------------------------------------------------ looking

    def condition(self) -> Condition:
        """What is waited for, checked; it cannot be got wrong a second time otherwise."""
        try:
            condition = Condition(
                application_id=self.application_id or None,
                tag=self.tag or None,
                name=self.name or None,
                submitted_after=_instant(self.submitted_after),
                states=_states(self.state),
                metric=self.metric or None,
                above=_number(self.above, "above"),
                below=_number(self.below, "below"),
            )
        except ValueError as error:
            raise AirflowFailException(f"the sensor {self.task_id}: {error}") from None
        wrong = condition.problems()
        if wrong:
            raise AirflowFailException(f"the sensor {self.task_id}: {'; '.join(wrong)}")
        return condition

    def _look(self, condition: Condition) -> Answer:
        from tony_airflow.connection import SiteError
        from tony_airflow.errors import FOR_GOOD, as_airflow
        from tony_airflow.sensors.looking import look
        from tony_core.client.errors import ClientError
        from tony_core.schedulers.port import NoSuchApplication, SchedulerError

        try:
            answer = look(self._hook_of(), condition)
        except (SchedulerError, ClientError, SiteError) as error:
            answered = isinstance(error, (*FOR_GOOD, NoSuchApplication, ClientError))
            if answered or self._silent_too_long():
                raise as_airflow(error) from error
            self.log.warning("the scheduler does not answer, and is asked again: %s", error)
            return Answer(WAITING, "the scheduler does not answer")
        self._silent_since = None
        if answer.said != self._said:
            self._said = answer.said
            self.log.info("%s", answer.said)
        return answer

    def _silent_too_long(self) -> bool:
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        return now - self._silent_since >= self.unreachable_timeout

    def _hook_of(self) -> TonyHook:
        from tony_airflow.hooks.tony import TonyHook

        if self._hook is None:
            self._hook = TonyHook(self.tony_conn_id, scheduler=self.scheduler or None)
        return self._hook

    def _close(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.close()

    def _refuse_missed(self, answer: Answer) -> None:
        if answer.verdict == MISSED:
            raise AirflowFailException(answer.said)


def _instant(value: Union[datetime, str, None]) -> Optional[float]:
    if value is None or value == "":
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"submitted_after is {value!r}, which is no time") from None
    if moment.tzinfo is None:
        raise ValueError(f"submitted_after is {value!r}, which is without a time zone")
    return moment.timestamp()


def _states(value: Union[str, Sequence[str]]) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    return tuple(getattr(name, "value", str(name)).strip().upper() for name in names)


def _number(value: Union[float, str, None], name: str) -> Optional[float]:
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}, which is no number") from None
