"""The buttons on a task's *Details*.

A link's address is pushed as an XCom as soon as it is known, so that its button works while the
task runs or is deferred. Airflow asks :meth:`get_link` once more when the task ends and stores the
answer in the same place: it must be what was pushed, or a good address would be replaced. The
operator knows what that was, and does not ask: to look for an address that there never was (of a
TensorBoard, say) puts an error into Airflow's log.

Which buttons a task has is decided when its DAG is parsed; an operator that knows its tasks by then
adds a :class:`TaskLogLink` for each.
"""

from __future__ import annotations

from typing import Any, ClassVar, Container, Iterable, List, Mapping, Tuple

import attrs
from airflow.providers.common.compat.sdk import BaseOperatorLink

PAGE, LOGS, TENSORBOARD, APPLICATION, PORTAL = "page", "logs", "tensorboard", "yarn", "portal"
LOG = "log:"
"""The names of links; ``log:worker:0``."""


def key_of(name: str) -> str:
    """The XCom key of a link by its name."""
    return "tony_link_" + name.replace(":", "_").replace("-", "_")


class _Pushed(BaseOperatorLink):
    """A link that is wherever it was pushed to."""

    link: ClassVar[str] = ""

    @property
    def xcom_key(self) -> str:
        """Where its address is kept."""
        return key_of(self.link)

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address that was pushed; empty while there is none."""
        pushed = getattr(operator, "links_pushed", None)
        if pushed is not None:
            return {key_of(name): url for name, url in pushed.items()}.get(self.xcom_key, "")
        from airflow.providers.common.compat.sdk import XCom

        return str(XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "")


class TensorBoardLink(_Pushed):
    """The job's TensorBoard."""

    name = "TensorBoard"
    link = TENSORBOARD


class TaskLogsLink(_Pushed):
    """The logs of all of the job's tasks."""

    name = "Task logs"
    link = LOGS


class YarnApplicationLink(_Pushed):
    """The application in the ResourceManager."""

    name = "YARN application"
    link = APPLICATION


class PortalLink(_Pushed):
    """The job in the portal."""

    name = "Portal"
    link = PORTAL


@attrs.define()
class TaskLogLink(_Pushed):
    """The log of one of the job's tasks."""

    task: str = "worker:0"

    @property
    def name(self) -> str:
        """The button's words."""
        return f"Log of {self.task}"

    @property
    def xcom_key(self) -> str:
        """Where its address is kept."""
        return key_of(LOG + self.task)


LINKS: Tuple[BaseOperatorLink, ...] = (
    TensorBoardLink(),
    TaskLogsLink(),
    YarnApplicationLink(),
    PortalLink(),
)
"""Every job's."""


def names_of(links: Iterable[Any]) -> List[str]:
    """The names of the links that a task has buttons for; there is no need of others."""
    tasks = [link.task for link in links if isinstance(link, TaskLogLink)]
    return [PAGE, LOGS, TENSORBOARD, APPLICATION, PORTAL, *(LOG + task for task in tasks)]


async def _a_set(**words: Any) -> None:
    from airflow.providers.common.compat.sdk import XCom

    if hasattr(XCom, "aset"):
        await XCom.aset(**words)
        return
    from asgiref.sync import sync_to_async  # Airflow 2

    await sync_to_async(XCom.set)(**words)


def push(ti: Any, links: Mapping[str, str], wanted: Container[str]) -> None:
    """From a running task, those that there are buttons for."""
    for name, url in links.items():
        if url and name in wanted:
            ti.xcom_push(key=key_of(name), value=url)


async def a_push(ti: Any, links: Mapping[str, str]) -> None:
    """From a trigger; ``ti`` is None where a DAG is tested, and there is no place to push to."""
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
