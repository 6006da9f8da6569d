"""Which buttons a task has, as Airflow asks the operator for them."""

from __future__ import annotations

from typing import Any, List, Tuple

from airflow.providers.common.compat.sdk import BaseOperator

from tony_airflow.links.tony import LINKS, TaskLogLink, names_of
from tony_airflow.operators.parsing import tasks_of


def buttons_of(roles: Any) -> Tuple[Any, ...]:
    """Those that lead to the job, and to each task that is known as the DAG is parsed."""
    return (*LINKS, *map(TaskLogLink, tasks_of(roles)))


class OperatorWithButtons(BaseOperator):
    """An operator that has buttons for the roles which it is given."""

    _buttons: Tuple[Any, ...] = LINKS
    _deferred = False  # then links are pushed by the trigger, in another process

    @property
    def operator_extra_links(self: Any) -> Any:  # type: ignore[override]
        """Airflow's question; of a mapped task it asks before there is an operator.

        None once the task is deferred: for each of them Airflow would look for what the trigger
        has pushed, complain of those that there are not, and replace the others.
        """
        if not isinstance(self, OperatorWithButtons):
            return buttons_of(self.partial_kwargs.get("roles"))
        return () if self._deferred else self._buttons

    @property
    def link_names(self) -> List[str]:
        """The names of the links that there are buttons for."""
        return names_of(self._buttons)
