"""How a sensor waits: it checks its condition now, or hands it to a trigger."""

from __future__ import annotations

import socket
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Union

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    PokeReturnValue,
)

from tony_airflow.errors import FOR_GOOD, as_airflow, translated_errors
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.links.addresses import found_links
from tony_airflow.links.tony import PORTAL, push
from tony_airflow.logins import requested_user
from tony_airflow.triggers.sensing import TonySensingTrigger
from tony_core.client.errors import ClientError, NotFound
from tony_core.client.merge import from_status
from tony_core.client.outage import REFUSED_S, SchedulerOutage
from tony_core.client.workflow.condition import MISSED, REACHED, WAITING, Condition, ConditionResult
from tony_core.schedulers.port import LastingRefusal, NoSuchApplication, SchedulerError
from tony_core.view import JobView

if TYPE_CHECKING:
    from tony_airflow.sensors.tony import TonySensor

REFUSAL_PAUSE_S = 2.0


class SensorWait:
    """The wait of one sensor, from its first check to the close of its connections."""

    def __init__(self, sensor: TonySensor, ti: Any = None) -> None:
        """``ti``: the task instance, whose links are pushed."""
        self.links: Dict[str, str] = {}
        self._sensor = sensor
        self._ti = ti
        self._log = sensor.log
        self._condition = read_condition(sensor)
        self._hook = _open_hook(sensor)
        limit_s = sensor.unreachable_timeout
        self._outage = SchedulerOutage(limit_s, REFUSED_S, login_s=limit_s)
        self._logged = ""

    def check_or_defer(self) -> Any:
        """What the sensor returns where the condition is met now; else it is deferred."""
        try:
            answer = self._check()
            if answer.verdict == WAITING:
                self._defer()
            _refuse_missed(answer)
        except AirflowException as error:
            # As in Airflow's own execute(), which does not run here.
            is_final = isinstance(error, AirflowFailException)
            if self._sensor.never_fail or (self._sensor.soft_fail and is_final):
                raise AirflowSkipException(str(error)) from error
            raise
        finally:
            self.close()
        return answer.found

    def poke(self) -> PokeReturnValue:
        """The result of one check, for Airflow."""
        answer = self._check()
        _refuse_missed(answer)
        return PokeReturnValue(answer.verdict == REACHED, answer.found)

    def close(self) -> None:
        """Close the connections."""
        self._hook.close()

    def _defer(self) -> None:
        sensor = self._sensor
        sensor.wait_in_trigger(
            TonySensingTrigger(
                site=self._hook.site.for_trigger(),
                condition=self._condition.to_dict(),
                poll_interval=max(sensor.poke_interval, 1.0),
                unreachable_s=sensor.unreachable_timeout,
                host=socket.gethostname(),
            ),
            timedelta(seconds=sensor.timeout),
        )

    def _check(self) -> ConditionResult:
        """Check the condition; a cluster that does not answer now counts as waiting."""
        while True:
            asked = time.monotonic()
            try:
                answer = self._evaluate()
                break
            except (SchedulerError, ClientError) as error:
                is_login = self._outage.is_lost_login(error)
                is_refusal = isinstance(error, LastingRefusal)
                is_answer = isinstance(error, (*FOR_GOOD, NoSuchApplication, ClientError))
                failure = self._outage.failed(error, asked)
                if failure.has_expired or (is_answer and not is_refusal):
                    raise as_airflow(error) from error
                if is_login or not is_refusal:
                    what = "this process cannot log in" if is_login else "the scheduler is silent"
                    self._log.warning("%s now, and asks again: %s", what, error)
                    return ConditionResult(WAITING, what)
                if failure.is_first:
                    self._log.warning("refused, and asked again for %g s: %s", REFUSED_S, error)
            # Within this check: the next may be a process of its own, which begins anew.
            time.sleep(REFUSAL_PAUSE_S)
        self._outage.answered()
        if answer.text != self._logged:
            self._logged = answer.text
            self._log.info("%s", answer.text)
        return answer

    def _evaluate(self) -> ConditionResult:
        condition, hook = self._condition, self._hook
        if condition.application_id:
            status: Any = _by_id(hook, condition.application_id)
        else:
            listed, own = hook.list(), hook.user()
            status = condition.search(listed, own)
            if status is None:
                return ConditionResult(WAITING, condition.explain_missing(listed, own))
        wants_metrics = condition.metric is not None and status is not None
        answer = condition.check(status, hook.metrics(status.app_id) if wants_metrics else {})
        if status is not None:
            self._push_links(status)
        return answer

    def _push_links(self, status: Any) -> None:
        """Push the links to the job that was found; a link is no reason to fail a wait."""
        site = self._hook.site
        try:
            view = status if isinstance(status, JobView) else from_status(status)
            if view.state.ended and not site.portal_url and PORTAL not in view.links:
                view = self._hook.view(view.app_id)  # a job may name a portal itself
            found = found_links(view, site)
            fresh = {name: url for name, url in found.items() if self.links.get(name) != url}
            self.links.update(fresh)
            if self._ti is not None:
                push(self._ti, fresh, fresh)
        except Exception as error:
            self._log.warning("the links could not be kept: %s", error)


def _open_hook(sensor: TonySensor) -> TonyHook:
    with translated_errors():
        user = requested_user(sensor)
    return TonyHook(sensor.tony_conn_id, scheduler=sensor.scheduler or None, proxy_user=user)


def read_condition(sensor: TonySensor) -> Condition:
    """The condition of a sensor's arguments; AirflowFailException if they are wrong."""
    try:
        condition = Condition(
            application_id=sensor.application_id or None,
            tag=sensor.tag or None,
            name=sensor.name or None,
            submitted_after=_timestamp(sensor.submitted_after),
            states=_states(sensor.state),
            metric=sensor.metric or None,
            above=_number(sensor.above, "above"),
            below=_number(sensor.below, "below"),
            user=sensor.user or None,
        )
        wrong = condition.problems()
    except ValueError as error:
        wrong = [str(error)]
    if wrong:
        raise AirflowFailException(f"the sensor {sensor.task_id}: {'; '.join(wrong)}")
    return condition


def result_of(event: Mapping[str, Any], log: Any) -> Any:
    """What the sensor returns after a trigger's event; AirflowException for a failed wait."""
    if event.get("refused"):
        raise AirflowFailException(str(event["refused"]))
    if event.get("error"):
        raise AirflowException(str(event["error"]))
    answer = ConditionResult(str(event["verdict"]), str(event["said"]), event.get("found"))
    _refuse_missed(answer)
    log.info("%s", answer.text)
    return answer.found


def _refuse_missed(answer: ConditionResult) -> None:
    if answer.verdict == MISSED:
        raise AirflowFailException(answer.text)


def _by_id(hook: TonyHook, app_id: str) -> Any:
    """An application's status, or its view in history; NoSuchApplication without either."""
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
