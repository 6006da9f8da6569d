"""A sensor for a job that another DAG or a command line has started.

Parsing a DAG imports this module, so functions import what only a run needs.
"""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Dict, Mapping, NoReturn, Optional, Sequence, Union

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
)

from tony_airflow.parsing import check_seconds, is_deferrable

if TYPE_CHECKING:
    from tony_airflow.hooks.tony import TonyHook
    from tony_core.client.workflow.condition import Answer, Condition
    from tony_core.client.workflow.outage import Outage


class TonySensor(BaseSensorOperator):
    """Waits until an application reaches a state, or reports a metric above or below a value.

    It returns ``{"application_id", "state"}``, for a metric also ``"metric"`` and ``"value"``. A
    job that ends otherwise fails the sensor for good: no retry would find it changed.

    :param application_id: which application; or
    :param tag: the newest that carries this tag; or
    :param name: the newest with this name. The sensor waits for one that does not exist yet.
    :param submitted_after: with a tag or name: only those submitted after this time (a datetime, or
        text like Airflow's ``{{ ts }}``), so that an earlier run's job does not count.
    :param state: one or several of SUBMITTED, ACCEPTED, RUNNING, SUCCEEDED, FAILED, KILLED,
        TIMED_OUT and ENDED, which is any end.
    :param metric: a metric that the program reports by ``tony.report``, instead of a state; the
        sensor sees its last value, and may miss one that lasts only a moment.
    :param above: the value that the metric has to exceed; or
    :param below: the value below which it has to fall.
    :param tony_conn_id: the connection that says where the application runs.
    :param scheduler: a scheduler instead of the connection's; ``local`` needs no connection.
    :param deferrable: wait in a triggerer, at the cost of no worker slot. ``poke_interval`` and
        ``timeout`` hold there too; a ``mode`` does not matter.
    :param unreachable_timeout: for how long a cluster that does not answer is asked again. With
        ``mode="reschedule"`` each check is a process of its own, and only ``timeout`` counts.
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
        self.deferrable = is_deferrable(deferrable)
        self.unreachable_timeout = check_seconds("unreachable_timeout", unreachable_timeout)
        self._outage: Optional[Outage] = None
        self._hook: Optional[TonyHook] = None
        self._logged = ""

    def execute(self, context: Any) -> Any:
        """Airflow's call."""
        from tony_core.client.workflow.condition import WAITING

        condition = self.condition()
        if not self.deferrable:
            try:
                return super().execute(context)
            finally:
                self._close()

        try:
            answer = self._check(condition)
            if answer.verdict == WAITING:
                self._defer(condition)
            self._refuse_missed(answer)
        except AirflowException as error:
            # As in Airflow's own execute(), which does not run here.
            is_final = isinstance(error, AirflowFailException)
            if self.never_fail or (self.soft_fail and is_final):
                raise AirflowSkipException(str(error)) from error
            raise
        finally:
            self._close()
        return answer.found

    def poke(self, context: Any) -> Any:
        """Airflow's call for each check on a worker."""
        from tony_core.client.workflow.condition import REACHED

        answer = self._check(self.condition())
        self._refuse_missed(answer)
        return PokeReturnValue(answer.verdict == REACHED, answer.found)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Airflow's call when the trigger has fired."""
        from tony_core.client.workflow.condition import Answer

        if event.get("refused"):
            raise AirflowFailException(str(event["refused"]))
        if event.get("error"):
            raise AirflowException(str(event["error"]))
        answer = Answer(str(event["verdict"]), str(event["said"]), event.get("found"))
        self._refuse_missed(answer)
        self.log.info("%s", answer.text)
        return answer.found

    def condition(self) -> Condition:
        """The condition of the sensor's arguments; it fails for good if they are wrong."""
        from tony_core.client.workflow.condition import Condition

        try:
            condition = Condition(
                application_id=self.application_id or None,
                tag=self.tag or None,
                name=self.name or None,
                submitted_after=_timestamp(self.submitted_after),
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

    def _defer(self, condition: Condition) -> NoReturn:
        from tony_airflow.operators.task_job import site_for_trigger
        from tony_airflow.triggers.sensing import TonySensingTrigger

        self.defer(
            trigger=TonySensingTrigger(
                site=site_for_trigger(self._open_hook().site),
                condition=condition.to_dict(),
                poll_interval=max(self.poke_interval, 1.0),
                unreachable_s=self.unreachable_timeout,
                host=socket.gethostname(),
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def _check(self, condition: Condition) -> Answer:
        """Check the condition once; a cluster that does not answer now counts as waiting."""
        from tony_airflow.errors import FOR_GOOD, as_airflow
        from tony_core.client.errors import ClientError
        from tony_core.client.workflow.condition import WAITING, Answer
        from tony_core.client.workflow.outage import Outage
        from tony_core.schedulers.port import NoSuchApplication, SchedulerError

        if self._outage is None:
            self._outage = Outage(self.unreachable_timeout)
        try:
            answer = self._evaluate(condition)
        except (SchedulerError, ClientError) as error:
            self._outage.failed()
            is_answer = isinstance(error, (*FOR_GOOD, NoSuchApplication, ClientError))
            if is_answer or self._outage.has_expired:
                raise as_airflow(error) from error
            self.log.warning("the scheduler does not answer, and is asked again: %s", error)
            return Answer(WAITING, "the scheduler does not answer")
        self._outage.answered()
        if answer.text != self._logged:
            self._logged = answer.text
            self.log.info("%s", answer.text)
        return answer

    def _evaluate(self, condition: Condition) -> Answer:
        hook = self._open_hook()
        status: Any = None
        if condition.application_id:
            status = _by_id(hook, condition.application_id)
        else:
            status = condition.search(hook.list())
        metrics: Dict[str, float] = {}
        if condition.metric is not None and status is not None:
            metrics = hook.metrics(status.app_id)
        return condition.check(status, metrics)

    def _open_hook(self) -> TonyHook:
        from tony_airflow.hooks.tony import TonyHook

        if self._hook is None:
            self._hook = TonyHook(self.tony_conn_id, scheduler=self.scheduler or None)
        return self._hook

    def _close(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.close()

    def _refuse_missed(self, answer: Answer) -> None:
        from tony_core.client.workflow.condition import MISSED

        if answer.verdict == MISSED:
            raise AirflowFailException(answer.text)


def _by_id(hook: TonyHook, app_id: str) -> Any:
    """An application's status, or its view in history; NoSuchApplication without either."""
    from tony_core.client.errors import NotFound
    from tony_core.schedulers.port import NoSuchApplication

    try:
        return hook.status(app_id)
    except NoSuchApplication:
        pass
    try:
        return hook.view(app_id)  # history may have what the scheduler has forgotten
    except NotFound:
        raise NoSuchApplication(
            f"{hook.site.label} knows no application {app_id}, and history holds none"
        ) from None


def _timestamp(value: Union[datetime, str, None]) -> Optional[float]:
    if value is None or value == "":
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"submitted_after is {value!r}, which is not a time") from None
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
        raise ValueError(f"{name} is {value!r}, which is not a number") from None
