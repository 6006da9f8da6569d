"""The tags by which a task finds the jobs that it, or an earlier try of it, has submitted.

Each job carries two tags, set before it is submitted:

* ``airflow_task_HASH`` names the task instance (DAG, run, task, map index) and never changes;
* ``airflow_HASH`` names it with its *generation*, a number that changes whenever the task is
  cleared.

A running job of the same generation is continued. A job of another generation should have ended
with the clear; it is ended before a new one begins. A job of the same generation that succeeded is
the result of an earlier try that died before it could return it. The first try has no earlier one,
so for it such a job is another's (a DAG that is tested again with the same date has the same run).

Labels for people come on top (``airflow.dag:train``, ``airflow.run:...``, ``airflow.task``,
``airflow.try``, ``airflow.map``), and a link back to the task. Nothing searches by them: where YARN
takes no more tags, the job's own come first.

The generation follows from what Airflow keeps: a clear raises ``max_tries`` to the tries so far
plus ``retries``; a retry leaves it. The two tags are hashes, since YARN lower-cases tags and takes
only 100 ASCII characters of each.
"""

from __future__ import annotations

import hashlib
from typing import Any, Iterable, NamedTuple, Optional, Tuple

from tony_core.client.workflow.tags import (
    LONGEST_TAG,
    MOST_TAGS,
    Predecessors,
    choose_predecessor,
    printable,
)
from tony_core.schedulers.port import AppStatus

LINK = "airflow"
"""The link on the job's page that leads back to the task."""

STATE_KEY = "tony_application_id"
"""The key of the job's id in Airflow's task state, without the generation."""


class TaskTags(NamedTuple):
    """The tags of the jobs of one task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    generation: int
    first: bool = True  # whether this is the first try of its generation
    try_number: int = 1
    url: str = ""  # of the task instance, in Airflow's own pages

    @property
    def of_task(self) -> str:
        """The tag of the task instance, in every generation."""
        return f"airflow_task_{self._hash()}"

    @property
    def of_generation(self) -> str:
        """The tag of the tries since the last clear."""
        return f"airflow_{self._hash(str(self.generation))}"

    @property
    def both(self) -> Tuple[str, str]:
        """The tags with which a job is submitted."""
        return (self.of_generation, self.of_task)

    def added_to(self, own: Iterable[str]) -> Tuple[str, ...]:
        """A job's own tags with these, and as many of the labels as YARN takes."""
        kept = tuple(dict.fromkeys((*own, *self.both)))
        room = max(0, MOST_TAGS - 1 - len(kept))  # TonY may add one
        return (*kept, *self.labels()[:room])

    def labels(self) -> Tuple[str, ...]:
        """The task's names for people, the most useful first."""
        names = {
            "run": self.run_id,
            "dag": self.dag_id,
            "task": self.task_id,
            **({"map": str(self.map_index)} if self.map_index >= 0 else {}),
            "try": str(self.try_number),
        }
        labels = (f"airflow.{name}:{value}" for name, value in names.items())
        return tuple(printable(label)[:LONGEST_TAG] for label in labels)

    @property
    def state_key(self) -> str:
        """The key of this generation's job in Airflow's task state."""
        return f"{STATE_KEY}_{self.generation}"

    def predecessors(self, found: Iterable[AppStatus]) -> Predecessors:
        """The applications of earlier tries, among those found in any order."""
        mine = [status for status in found if self.of_task in _lower(status.tags)]
        mine.sort(key=lambda status: (status.submitted, status.app_id), reverse=True)
        return choose_predecessor(
            mine,
            lambda status: self.of_generation in _lower(status.tags),
            accept_succeeded=not self.first,
        )

    def _hash(self, *more: str) -> str:
        parts = (self.dag_id, self.run_id, self.task_id, str(self.map_index), *more)
        # No part can hold a zero byte: two different tasks never give the same text.
        return hashlib.sha1("\0".join(parts).encode(), usedforsecurity=False).hexdigest()


def task_tags(ti: Any, retries: Optional[int]) -> TaskTags:
    """The tags of a task instance, of any of Airflow's classes for one."""
    map_index = getattr(ti, "map_index", None)
    generation = generation_of(ti, retries)
    try_number = int(getattr(ti, "try_number", None) or 1)
    url = str(getattr(ti, "log_url", None) or "")
    return TaskTags(
        dag_id=str(ti.dag_id),
        run_id=str(ti.run_id),
        task_id=str(ti.task_id),
        map_index=-1 if map_index is None else int(map_index),
        generation=generation,
        first=try_number <= generation + 1,
        try_number=try_number,
        url=url if url.startswith(("http://", "https://")) else "",
    )


def generation_of(ti: Any, retries: Optional[int]) -> int:
    """0, and another number after each clear."""
    return int(getattr(ti, "max_tries", None) or 0) - int(retries or 0)


def _lower(tags: Iterable[str]) -> Tuple[str, ...]:
    return tuple(tag.lower() for tag in tags)
