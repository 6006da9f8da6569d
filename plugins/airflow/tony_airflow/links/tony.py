"""The links on a task's *Details*, which Airflow shows as buttons.

A link's address is pushed as an XCom as soon as it is known, so that its button works while the
task runs or is deferred. Airflow calls :meth:`get_link` once more when the task ends, and stores
the answer in the same place: it must be the address that was pushed. The operator remembers the
addresses, and reads no XCom: a read of one that was never pushed (TensorBoard's, say) puts an error
into Airflow's log.

A DAG's parse decides which links a task has; an operator that knows the job's tasks by then adds a
:class:`TaskLogLink` for each.
"""

from __future__ import annotations

from typing import Any, ClassVar, Container, Iterable, List, Mapping, Tuple

import attrs
from airflow.providers.common.compat.sdk import BaseOperatorLink

PAGE, LOGS, TENSORBOARD, APPLICATION, PORTAL = "page", "logs", "tensorboard", "yarn", "portal"
LOG = "log:"
"""The names of links; ``log:worker:0``."""

MOST_LOG_LINKS = 16  # for single tasks; the job's page lists all


def key_of(name: str) -> str:
    """The XCom key of a link by its name."""
    return "tony_link_" + name.replace(":", "_").replace("-", "_")


class _PushedLink(BaseOperatorLink):
    """A link whose address is an XCom."""

    link: ClassVar[str] = ""

    @property
    def xcom_key(self) -> str:
        """The key of its address."""
        return key_of(self.link)

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address that was pushed; empty before that."""
        pushed = getattr(operator, "links_pushed", None)
        if pushed is not None:
            return {key_of(name): url for name, url in pushed.items()}.get(self.xcom_key, "")
        from airflow.providers.common.compat.sdk import XCom

        return str(XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "")


class TensorBoardLink(_PushedLink):
    """The job's TensorBoard."""

    name = "TensorBoard"
    link = TENSORBOARD


class TaskLogsLink(_PushedLink):
    """The logs of all of the job's tasks."""

    name = "Task logs"
    link = LOGS


class YarnApplicationLink(_PushedLink):
    """The application in the ResourceManager."""

    name = "YARN application"
    link = APPLICATION


class PortalLink(_PushedLink):
    """The job in the portal."""

    name = "Portal"
    link = PORTAL


@attrs.define()
class TaskLogLink(_PushedLink):
    """The log of one of the job's tasks."""

    task: str = "worker:0"

    @property
    def name(self) -> str:
        """The button's text."""
        return f"Log of {self.task}"

    @property
    def xcom_key(self) -> str:
        """The key of its address."""
        return key_of(LOG + self.task)


LINKS: Tuple[BaseOperatorLink, ...] = (
    TensorBoardLink(),
    TaskLogsLink(),
    YarnApplicationLink(),
    PortalLink(),
)
"""The links of every job."""

SENSOR_LINKS: Tuple[BaseOperatorLink, ...] = (YarnApplicationLink(), PortalLink())
"""The links of a sensor, to the job that it has found."""


def links_for(roles: Any) -> Tuple[Any, ...]:
    """The links to the job, and to each task's log that is known when the DAG is parsed."""
    return (*LINKS, *map(TaskLogLink, _first_tasks(roles)))


def _first_tasks(roles: Any) -> List[str]:
    names: List[str] = []
    for role, keys in roles.items() if isinstance(roles, Mapping) else ():
        count = keys.get("instances") if isinstance(keys, Mapping) else keys
        if isinstance(role, str) and isinstance(count, int) and not isinstance(count, bool):
            names += [f"{role}:{index}" for index in range(min(count, MOST_LOG_LINKS))]
    return names[:MOST_LOG_LINKS]


def names_of(links: Iterable[Any]) -> List[str]:
    """The names of a task's links, whose addresses are worth pushing."""
    tasks = [link.task for link in links if isinstance(link, TaskLogLink)]
    return [PAGE, LOGS, TENSORBOARD, APPLICATION, PORTAL, *(LOG + task for task in tasks)]


async def _a_set(**xcom: Any) -> None:
    from airflow.providers.common.compat.sdk import XCom

    if hasattr(XCom, "aset"):
        await XCom.aset(**xcom)
        return
    from asgiref.sync import sync_to_async  # Airflow 2

    await sync_to_async(XCom.set)(**xcom)


def push(ti: Any, links: Mapping[str, str], wanted: Container[str]) -> None:
    """Push the ``wanted`` ones of the links from a running task."""
    for name, url in links.items():
        if url and name in wanted:
            ti.xcom_push(key=key_of(name), value=url)


async def a_push(ti: Any, links: Mapping[str, str]) -> None:
    """Push links from a trigger; ``ti`` is None in a DAG's test, which keeps no XComs."""
    if ti is None:
        return
    where = {
        "dag_id": ti.dag_id,
        "task_id": ti.task_id,
        "run_id": ti.run_id,
        "map_index": getattr(ti, "map_index", -1),
    }
    for name, url in links.items():
        if url:
            await _a_set(key=key_of(name), value=url, **where)
