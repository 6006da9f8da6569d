"""A task of a DAG that runs a training on the cluster, from whatever side it is looked at."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from tests.cluster.airflow.rest import WITHIN, Place, wait_for
from tests.cluster.airflow.standing import Airflow
from tests.cluster.hadoop.cluster import Hadoop

TASK = "train"

PROGRAM = """
import os, pathlib, sys, time
import tony

folder = pathlib.Path(sys.argv[1])
app_id = os.environ["APP_ID"]
with (folder / app_id).open("a") as began:
    print(time.time(), file=began)
print("the program of", app_id, "trains", flush=True)
for step in range(3600):
    if (folder / f"fail-{app_id}").exists():
        sys.exit("the training data is broken")
    if (folder / "over").exists():
        break
    tony.report(step=step, metrics={"accuracy": 0.9})
    (folder / app_id).touch()
    time.sleep(0.1)
"""
"""Trains until the file ``over`` is in its folder; ``fail-APPLICATION`` makes it fail.

The file APPLICATION holds when its program began, and is touched as long as that runs.
"""

LIVING = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"


class Training:
    """One run of a DAG whose task ``train`` runs PROGRAM, and the applications that it made."""

    def __init__(
        self,
        airflow: Airflow,
        cluster: Hadoop,
        dag_id: str,
        folder: Path,
        conf: Mapping[str, Any],
    ) -> None:
        self._cluster = cluster
        self.rest = airflow.rest
        folder.mkdir()
        folder.chmod(0o777)
        self.folder = folder
        self.source = folder / "src"
        self.source.mkdir()
        (self.source / "train.py").write_text(PROGRAM)
        self.run_id = f"{dag_id}-{time.time_ns()}"
        self.place: Place = (dag_id, self.run_id, TASK)
        settings = {"src": str(self.source), "folder": str(folder), **conf}
        self.rest.trigger(dag_id, self.run_id, settings)

    # ------------------------------------------------------------------ on the cluster

    def applications(self, states: str = "") -> List[Dict[str, Any]]:
        """Those that were made for this run, oldest first."""
        found = [
            one for one in self._cluster.applications(states) if self.run_id in str(one["name"])
        ]
        return sorted(found, key=lambda one: int(one["startedTime"]))

    def trains(self, number: int = 1) -> str:
        """The id of its application number so many, once its program runs."""

        def look() -> List[str]:
            ran = {path.name for path in self.folder.glob("application_*")}
            return [one["id"] for one in self.applications() if one["id"] in ran]

        found = wait_for(
            look,
            lambda ids: len(ids) >= number,
            lambda ids: f"program number {number} does not run: {ids}\n{self.story()}",
            lambda ids: len(ids) < number and self._over(),
        )
        return str(found[number - 1])

    def overlaps(self) -> List[str]:
        """Of each pair of its applications that were there at once, by YARN's word or by what
        their programs have left, when they began and ended."""
        found = []
        for kind, spans in (("applications", self._submitted()), ("programs", self._programs())):
            for before, after in itertools.pairwise(spans):
                if before[1] > after[0]:
                    found.append(f"{kind} at once: {before}, {after}")
        return found

    def _submitted(self) -> List[Tuple[float, float, str]]:
        return [
            (
                int(one["startedTime"]) / 1000,
                int(one["finishedTime"]) / 1000 or float("inf"),
                one["id"],
            )
            for one in self.applications()
        ]

    def _programs(self) -> List[Tuple[float, float, str]]:
        return sorted(
            (float(path.read_text().split()[0]), path.stat().st_mtime, path.name)
            for path in self.folder.glob("application_*")
            if path.read_text().strip()
        )

    def _over(self) -> bool:
        return self.task()["state"] in ("success", "failed") and not self.applications(LIVING)

    def appears(self) -> str:
        """The id of its first application, as soon as the cluster knows it."""
        found = wait_for(
            self.applications, bool, lambda _: f"no application\n{self.story()}", self._ended
        )
        return str(found[0]["id"])

    def _ended(self, found: Any) -> bool:
        return not found and self._over()

    def goes_on(self, app_id: str) -> bool:
        """Its application runs, and no other."""
        living = [one["id"] for one in self.applications(LIVING)]
        return living == [app_id]

    def gone(self, *app_ids: str, generations: int = 1) -> Dict[str, str]:
        """Once no application of this run lives: of each its final status; these and no others.

        All of a generation, which begins with a clear, carry one tag.
        """
        wait_for(
            lambda: self.applications(LIVING),
            lambda living: not living,
            lambda living: f"still there: {[one['id'] for one in living]}\n{self.story()}",
        )
        found = {one["id"]: str(one["finalStatus"]) for one in self.applications()}
        assert list(found) == list(app_ids), (found, self.story())
        tags = {_tag(one) for one in self.applications()}
        assert len(tags) == min(generations, len(app_ids)), tags
        return found

    # ------------------------------------------------------------------ in Airflow

    def task(self) -> Dict[str, Any]:
        return self.rest.task(self.place)

    def state(self) -> str:
        """Its state; ``deleted`` when Airflow has it no more."""
        try:
            return str(self.task()["state"])
        except AssertionError as error:
            if " 404 " in str(error):
                return "deleted"
            raise

    def wait(self, *states: str, tries: int = 0, within: float = WITHIN) -> Dict[str, Any]:
        """The task in one of these states."""
        found: Dict[str, Any] = self.rest.wait(self.place, *states, tries=tries, within=within)
        return found

    def log(self, number: int = 1) -> str:
        return self.rest.log(self.place, number)

    def wait_for_words(self, words: str) -> str:
        """The log once these words stand in it: its end comes a moment after the task's state."""
        found: str = wait_for(
            self.log, lambda log: words in log, lambda log: f"not in the log: {words}\n{log}"
        )
        return found

    def result(self) -> Any:
        """What the task returned."""
        return self.rest.xcom(self.place)

    def story(self) -> str:
        """All that helps when it goes wrong."""
        if self.state() == "deleted":
            return f"{'/'.join(self.place)} is deleted"
        task = self.task()
        logs = [self.log(number) for number in range(1, int(task["try_number"]) + 1)]
        short = {name: task[name] for name in ("state", "try_number", "max_tries")}
        return "\n".join([str(short), *(text[-6000:] for text in logs)])

    # ------------------------------------------------------------------ what can be done to it

    def over(self) -> None:
        """The program may end well."""
        (self.folder / "over").touch()

    def fail(self, app_id: str) -> None:
        """The program of an application fails."""
        (self.folder / f"fail-{app_id}").touch()

    def close(self) -> None:
        """Nothing of it is left to disturb the next."""
        self.over()
        if self.state() not in ("success", "failed", "skipped", "deleted"):
            self.rest.mark(self.place, "failed")
        for one in self.applications(LIVING):
            self._cluster.kill_application(one["id"])


def _tag(one: Mapping[str, Any]) -> str:
    """The tag that Airflow's side finds its application by."""
    found = re.search(r"airflow_[0-9a-f]{40}", str(one.get("applicationTags", "")))
    assert found, one
    return found[0]
