"""Tags by which a task finds the jobs that it, or an earlier try of it, has submitted.

A task that dies between a submit and the moment when the job's id was written down would leave
a job that nobody knows. So each job carries two tags, set before it is submitted:

* ``airflow_task_HASH``: of which task instance (DAG, run, task, map index) it is, always the same;
* ``airflow_HASH``: the same with the *generation*, which counts anew whenever the task is cleared.

A running job of the same generation is one's own, and is taken up again; one of another
generation was to end with the clear, and is ended before a new one begins. An ended job of the
same generation that succeeded is the result that an earlier try did not live to tell; the first
try had none before it, so for that one it is something else's (a DAG tested again and again with
one date has the same run each time).

For people there are labels besides (``airflow.dag:train``, ``airflow.run:...``, ``airflow.task``,
``airflow.try``, ``airflow.map``), and a link back to the task. Nothing is found by them: where YARN
takes no more tags, they give way to the job's own.

The generation is what Airflow itself keeps: a clear raises ``max_tries`` to the tries so far
plus ``retries``; a retry leaves it. Tags are hashes since YARN lower-cases tags, and takes only
ASCII and 100 characters of each.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Iterable, List, Optional, Tuple

from tony_core.schedulers.port import AppState, AppStatus

LINK = "airflow"
"""The link on the job's page that leads back to the task."""

MOST_TAGS, LONGEST_TAG = 9, 100  # YARN's, which takes ten: one may be TonY's own
_PLAIN = re.compile(r"[!-+\--~]")  # printable ASCII without a blank or comma

STATE_KEY = "tony_application_id"
"""Where Airflow's own task state keeps a job's id; a generation is added to it."""


@dataclass(frozen=True)
class TaskTags:
    """The tags of the jobs of one task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    generation: int
    first: bool = True  # whether no try of this generation came before
    try_number: int = 1
    url: str = ""  # of the task instance, in Airflow's own pages

    @property
    def of_task(self) -> str:
        """The same for every generation."""
        return f"airflow_task_{self._hash()}"

    @property
    def of_generation(self) -> str:
        """That of the tries since the last clear."""
        return f"airflow_{self._hash(str(self.generation))}"

    @property
    def both(self) -> Tuple[str, str]:
        """What a job is submitted with."""
        return (self.of_generation, self.of_task)

    def beside(self, own: Iterable[str]) -> Tuple[str, ...]:
        """A job's own tags with these, as many of the labels as YARN takes."""
        kept = tuple(dict.fromkeys((*own, *self.both)))
        room = max(0, MOST_TAGS - len(kept))
        return (*kept, *self.labels()[:room])

    def labels(self) -> Tuple[str, ...]:
        """Whose job it is, for people, what is most needed first."""
        told = {
            "run": self.run_id,
            "dag": self.dag_id,
            "task": self.task_id,
            **({"map": str(self.map_index)} if self.map_index >= 0 else {}),
            "try": str(self.try_number),
        }
        found = [f"airflow.{name}:{value}" for name, value in told.items()]
        return tuple(
            "".join(mark if _PLAIN.fullmatch(mark) else "_" for mark in label)[:LONGEST_TAG]
            for label in found
        )

    @property
    def state_key(self) -> str:
        """Under which key the id of this generation's job is kept."""
        return f"{STATE_KEY}_{self.generation}"

    def _hash(self, *more: str) -> str:
        said = (self.dag_id, self.run_id, self.task_id, str(self.map_index), *more)
        # No part can hold a zero byte: two different tasks never give the same text.
        return hashlib.sha1("\0".join(said).encode(), usedforsecurity=False).hexdigest()


def task_tags(ti: Any, retries: Optional[int]) -> TaskTags:
    """Those of a task instance, of any Airflow's kind."""
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


@dataclass(frozen=True)
class Predecessors:
    """The jobs that a task instance finds when it begins."""

    mine: Optional[AppStatus] = None  # of this generation: running, or else succeeded
    left: Tuple[AppStatus, ...] = ()  # running, and to be ended first


def sort_out(found: Iterable[AppStatus], tags: TaskTags) -> Predecessors:
    """What to do with the jobs that carry the task's tag (newest first or not)."""
    mine: List[AppStatus] = []
    left: List[AppStatus] = []
    succeeded: List[AppStatus] = []
    for status in sorted(found, key=lambda status: (status.submitted, status.app_id), reverse=True):
        known = {tag.lower() for tag in status.tags}
        if tags.of_task not in known:
            continue
        of_this = tags.of_generation in known
        if not status.state.ended:
            # Two of one generation cannot be, unless a clock or a cluster played tricks: the
            # newest goes on.
            (mine if of_this and not mine else left).append(status)
        elif of_this and not tags.first and status.state is AppState.SUCCEEDED:
            succeeded.append(status)
    kept = mine or succeeded
    return Predecessors(kept[0] if kept else None, tuple(left))
