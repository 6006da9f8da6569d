"""Jobs for tests of advice: what each task used at every moment, over one session or several."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from tests.history.stories import StoryBuilder
from tony_core.advice.advice import Advice
from tony_core.advice.advise import advise
from tony_core.advice.thresholds import LEAST_EVIDENCE, LeastEvidence
from tony_core.history.reader import JobHistory

Use = Union[float, Callable[[float], float]]  # or of the seconds since the session's start
Uses = Mapping[str, Mapping[str, Use]]  # role or task -> metric -> use

#: What a right job of :data:`ASKED` uses.
RIGHT: Mapping[str, Use] = {"rss_mb": 3500.0, "cpu_percent": 150.0, "step": lambda s: s}
ASKED = {"instances": 2, "memory_mb": 4096, "vcores": 2, "gpus": 0}
EVERY_S = 5.0
MEASURED = ("rss_mb", "cpu_percent", "gpu_percent", "gpu_memory_mb", "gpu_memory_total_mb")


class JobBuilder(StoryBuilder):
    """A job of several roles."""

    def __init__(self, roles: Optional[Mapping[str, Mapping[str, Any]]] = None) -> None:
        roles = {name: {**ASKED, **asked} for name, asked in (roles or {"worker": {}}).items()}
        super().__init__(0, roles)
        self.job["mode"] = "GANG"
        for name, asked in roles.items():
            for index in range(int(asked["instances"])):
                self.tasks[f"{name}:{index}"] = {
                    "task": f"{name}:{index}",
                    "role": name,
                    "state": "pending",
                    "tracking": "untracked" if name == "ps" else "tracked",
                    "usage": {},
                }

    def start(self, waits: float = 5.0, stages: float = 5.0, tasks: Sequence[str] = ()) -> None:
        """Begin a session and get its programs to run."""
        self.begin().wait(waits).move("launched", *tasks)
        self.wait(stages).move("running", *tasks, ready_s=0.0)

    def run(self, seconds: float, uses: Uses, tasks: Sequence[str] = ()) -> None:
        """Let programs run, and measure them every five seconds."""
        begin, end = self.at, self.at + seconds
        while self.at + EVERY_S < end:
            self.wait(EVERY_S)
            for task in tasks or tuple(self.tasks):
                role = task.rpartition(":")[0]
                for metric, use in {**uses.get(role, {}), **uses.get(task, {})}.items():
                    self.measure(task, metric, use(self.at - begin) if callable(use) else use)
        self.at = end

    def fail(self, task: str, cause: str = "exited", text: str = "", fault: str = "user") -> None:
        """End a session with a failure."""
        self.move("failed", task)
        fields = {"task": task, "role": task.rpartition(":")[0], "exit_code": 1, "cause": cause,
                  "fault": fault, "stderr_tail": [text], "message": ""}  # fmt: skip
        self.line("root-cause", f"{task} failed", task)
        self.events[-1]["fields"] = fields
        self.line("restarting", "the next session follows")
        self.job["root_cause"] = fields
        self.wait(2.0)


def job(
    uses: Optional[Uses] = None,
    seconds: float = 1200.0,
    roles: Optional[Mapping[str, Mapping[str, Any]]] = None,
    state: str = "SUCCEEDED",
) -> JobHistory:
    """A job of one session."""
    builder = JobBuilder(roles)
    builder.start()
    builder.run(seconds, {"worker": RIGHT} if uses is None else uses)
    if state == "RUNNING":
        return builder.record()
    builder.move("succeeded" if state == "SUCCEEDED" else "failed")
    return builder.finish(state)


def config(**keys: str) -> bytes:
    """A configuration as history keeps it; ``_`` stands for a dot."""
    entries = "".join(
        f"<property><name>{name.replace('_', '.')}</name><value>{value}</value></property>"
        for name, value in keys.items()
    )
    return f"<configuration>{entries}</configuration>".encode()


def found(
    record: JobHistory, data: bytes = b"", rule: str = "", least: LeastEvidence = LEAST_EVIDENCE
) -> List[Advice]:
    """The advice on it, of one rule or of all."""
    return [each for each in advise(record, data, least=least) if rule in ("", each.rule)]


def names(
    record: JobHistory, data: bytes = b"", least: LeastEvidence = LEAST_EVIDENCE
) -> List[str]:
    """Which rules speak."""
    return [each.rule for each in advise(record, data, least=least)]


def values(advice: Advice) -> Dict[str, str]:
    """Its changes: key -> value."""
    return {change.key: change.value for change in advice.changes}
