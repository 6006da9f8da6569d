"""A sensor for a job that another DAG or a command line has started.

:mod:`.waiting` has all that only a run needs: parsing a DAG file imports this module, and none of
TonY's client (see :mod:`tony_airflow.operators.tony`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

from airflow.providers.common.compat.sdk import BaseSensorOperator

from tony_airflow.links.tony import SENSOR_LINKS
from tony_airflow.parsing import (
    Argument,
    GivenUser,
    check_seconds,
    check_user,
    is_deferrable,
)

if TYPE_CHECKING:
    from tony_airflow.sensors.waiting import SensorWait


class TonySensor(BaseSensorOperator):
    """Waits until an application reaches a state, or reports a metric above or below a value.

    It returns ``{"application_id", "state"}``, for a metric also ``"metric"`` and ``"value"``. A
    job that ends otherwise fails the sensor for good: no retry would find it changed.

    :param application_id: which application; or
    :param tag: the newest that carries this tag; or
    :param name: the newest with this name. The sensor waits for one that does not exist yet.
    :param user: with a tag or name: whose job it has to be, since any user can give one any name.
        By default the user for whom the sensor acts; ``"*"`` for any user's.
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
    :param proxy_user: the user for whom the connection's login acts: who may read the job.
    :param run_as_owner: act for the task's owner instead.
    :param deferrable: wait in a triggerer, at the cost of no worker slot. ``poke_interval`` and
        ``timeout`` hold there too; a ``mode`` does not matter.
    :param unreachable_timeout: for how long a cluster that does not answer is asked again. With
        ``mode="reschedule"`` each check is a process of its own, and only ``timeout`` counts.
    """

    template_fields: Sequence[str] = (
        "application_id",
        "tag",
        "name",
        "user",
        "submitted_after",
        "state",
        "metric",
        "above",
        "below",
        "tony_conn_id",
        "scheduler",
        "proxy_user",
    )
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        application_id: Optional[str] = None,
        tag: Optional[str] = None,
        name: Optional[str] = None,
        user: Optional[str] = None,
        submitted_after: Union[datetime, str, None] = None,
        state: Union[str, Sequence[str]] = "SUCCEEDED",
        metric: Optional[str] = None,
        above: Union[float, str, None] = None,
        below: Union[float, str, None] = None,
        tony_conn_id: str = "tony_default",
        scheduler: Optional[str] = None,
        proxy_user: GivenUser = Argument.NOT_GIVEN,
        run_as_owner: bool = False,
        poke_interval: Union[timedelta, float] = 10.0,
        deferrable: Optional[bool] = None,
        unreachable_timeout: Union[timedelta, float] = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.application_id = application_id
        self.tag = tag
        self.name = name
        self.user = user
        self.submitted_after = submitted_after
        self.state = state
        self.metric = metric
        self.above = above
        self.below = below
        self.tony_conn_id = tony_conn_id
        self.scheduler = scheduler
        self.names_proxy_user = check_user(proxy_user, run_as_owner)
        self.proxy_user = None if proxy_user is Argument.NOT_GIVEN else proxy_user
        self.run_as_owner = run_as_owner
        self.deferrable = is_deferrable(deferrable)
        self.unreachable_timeout = check_seconds("unreachable_timeout", unreachable_timeout)
        self._is_deferred = False  # then the trigger pushes the links, in another process
        self._wait: Optional[SensorWait] = None

    @property
    def operator_extra_links(self: Any) -> Any:  # type: ignore[override]
        """Airflow's call; for a mapped task it comes before there is a sensor.

        Empty once the task is deferred, as for the operator.
        """
        is_deferred = isinstance(self, TonySensor) and self._is_deferred
        return () if is_deferred else SENSOR_LINKS

    @property
    def links_pushed(self) -> Mapping[str, str]:
        """The links of this try, by name."""
        return self._wait.links if self._wait is not None else {}

    def execute(self, context: Any) -> Any:
        """Airflow's call."""
        wait = self._begin(context)
        if self.deferrable:
            return wait.check_or_defer()
        try:
            return super().execute(context)
        finally:
            wait.close()

    def poke(self, context: Any) -> Any:
        """Airflow's call for each check on a worker."""
        return (self._wait or self._begin(context)).poke()

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Airflow's call when the trigger has fired."""
        from tony_airflow.sensors.waiting import result_of

        self._is_deferred = True
        return result_of(event, self.log)

    def wait_in_trigger(self, trigger: Any, timeout: timedelta) -> None:
        """Defer the sensor until the trigger fires."""
        self._is_deferred = True
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timeout)

    def _begin(self, context: Any) -> SensorWait:
        from tony_airflow.sensors.waiting import SensorWait

        self._wait = SensorWait(self, context.get("ti"))
        return self._wait
