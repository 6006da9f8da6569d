"""Stories of jobs for tests: built line by line, with the time that each thing took."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from tony_core.history.reader import JobHistory

BEGIN = 1_700_000_000.0


class StoryBuilder:
    """The story of a job of one role; ``wait`` lets time pass."""

    def __init__(self, workers: int = 2, roles: Optional[Mapping[str, Any]] = None) -> None:
        self.at = BEGIN
        self.session = -1
        self.events: List[Dict[str, Any]] = []
        self.tasks: Dict[str, Dict[str, Any]] = {
            f"worker:{index}": {"task": f"worker:{index}", "role": "worker", "state": "pending"}
            for index in range(workers)
        }
        self.metrics: Dict[str, Dict[str, List[List[float]]]] = {}
        self.job: Dict[str, Any] = {
            "app_id": "app_1",
            "state": "RUNNING",
            "submitted": BEGIN,
            "roles": roles or {"worker": {"memory_mb": 2048, "vcores": 2, "gpus": 1}},
        }

    def wait(self, seconds: float) -> StoryBuilder:
        self.at += seconds
        return self

    def line(self, kind: str, text: str = "", task: str = "", **fields: Any) -> StoryBuilder:
        self.events.append(
            {
                "n": len(self.events) + 1,
                "time": round(self.at, 3),
                "kind": kind,
                "text": text,
                "task": task,
                "session": self.session,
                "fields": fields,
            }
        )
        return self

    def begin(self, asks: bool = True) -> StoryBuilder:
        self.session += 1
        self.line("session-started", f"session {self.session} begins")
        if asks:
            self.line("stage-released", "asking for containers", roles=["worker"])
        return self

    def move(
        self, state: str, *tasks: str, ready_s: Optional[float] = None, why: str = ""
    ) -> StoryBuilder:
        for task in tasks or tuple(self.tasks):
            more = {} if ready_s is None else {"ready_s": ready_s}
            self.line("task-state", f"{task} {state} {why}", task, state=state, node="n1", **more)
            self.tasks[task]["state"] = state
        return self

    def measure(self, task: str, metric: str, value: float) -> StoryBuilder:
        self.metrics.setdefault(task, {}).setdefault(metric, []).append([self.at, value])
        return self

    def finish(self, state: str = "SUCCEEDED") -> JobHistory:
        self.job.update(state=state, finished=self.at)
        return self.record()

    def record(self) -> JobHistory:
        return JobHistory(
            "app_1",
            self.job,
            tuple(self.tasks.values()),
            {"task": self.metrics, "latest": {}},
            tuple(self.events),
        )


def kinds(spans: Sequence[Any]) -> List[Any]:
    """Of each span its kind and how long it took."""
    return [(span.kind, round(span.end - span.begin, 3)) for span in spans]
