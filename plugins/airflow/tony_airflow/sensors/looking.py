"""One look at the application that a sensor waits for: with a hook, on a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

from tony_airflow.sensors.condition import Answer, Condition
from tony_core.client.errors import NotFound
from tony_core.schedulers.port import NoSuchApplication

if TYPE_CHECKING:
    from tony_airflow.hooks.tony import TonyHook


def look(hook: TonyHook, condition: Condition) -> Answer:
    """Where it stands now; NoSuchApplication for an id that nobody knows."""
    if condition.application_id:
        status: Optional[Any] = _by_id(hook, condition.application_id)
    else:
        status = condition.pick(hook.list())
    metrics: Dict[str, float] = {}
    if condition.metric is not None and status is not None:
        metrics = hook.metrics(status.app_id)
    return condition.judge(status, metrics)


def _by_id(hook: TonyHook, app_id: str) -> Any:
    try:
        return hook.status(app_id)
    except NoSuchApplication:
        pass
    try:
        return hook.view(app_id)  # the scheduler has forgotten it, history has not
    except NotFound:
        raise NoSuchApplication(
            f"{hook.site.words} knows no application {app_id}, and history holds none"
        ) from None
