"""Requests of MLflow's REST API 2.0, within its limits, and what its answers mean. Pure.

A server refuses a whole request for one name that it does not like, so names are made to fit here:
characters, length, and no path that leads elsewhere. Texts that are too long are cut.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from tony_core.jsontext import read_object
from tony_core.printable import printable

BATCH = 1000  # metrics, parameters and tags of one request, in all
BATCH_METRICS = 800
BATCH_PARAMS = 50  # the server allows 100, and a request of a megabyte
BATCH_TAGS = 50
LONGEST_NAME = 250
LONGEST_PARAM = 6000  # as of MLflow 2.8
LONGEST_TAG = 5000
LONGEST_RUN_NAME = 250
APP_TAG = "tony/app_id"
KEY_TAG = "tony/run_key"  # by which a run is found again
_ODD = re.compile(r"[^/\w.\- ]", re.ASCII)
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
_STATUS = {"SUCCEEDED": "FINISHED", "KILLED": "KILLED"}


class Request(NamedTuple):
    """One request; ``body`` is JSON of a POST, None stands for a GET."""

    path: str  # below /api/2.0/mlflow/
    body: Optional[Mapping[str, Any]] = None
    query: Tuple[Tuple[str, str], ...] = ()

    @property
    def may_repeat(self) -> bool:
        """Whether it does no more twice than once: what makes something makes two of it."""
        return not self.path.endswith("/create")


class Answer(NamedTuple):
    """What came back: a status and an object, or why nothing did."""

    status: int = 0
    body: Mapping[str, Any] = {}
    problem: str = ""  # of the connection
    retry_after_s: Optional[float] = None
    is_late: bool = False  # nothing came in time: the server may yet carry the request out

    @property
    def is_ok(self) -> bool:
        """Whether the request was carried out."""
        return self.status == 200

    @property
    def code(self) -> str:
        """MLflow's own error code."""
        return str(self.body.get("error_code") or "")

    @property
    def is_refusal(self) -> bool:
        """Whether the same request would be refused again: it is what is wrong."""
        return self.status in (400, 413, 422)

    def describe(self) -> str:
        """In words, for a person; a server's own text is cut."""
        if self.problem:
            return self.problem
        if self.status in (401, 403):
            return f"it refuses this user (HTTP {self.status})"
        if self.is_ok:
            return "it answers, but not as MLflow does (is the address right?)"
        text = printable(" ".join(str(self.body.get("message") or "")[:400].split())[:200])
        return f"it answers HTTP {self.status}{': ' + text if text else ''}"


class Metric(NamedTuple):
    """One point of a curve."""

    key: str
    value: float
    timestamp_ms: int
    step: int


class Batch(NamedTuple):
    """What one request logs."""

    metrics: Tuple[Metric, ...] = ()
    params: Tuple[Tuple[str, str], ...] = ()
    tags: Tuple[Tuple[str, str], ...] = ()

    @property
    def entries(self) -> int:
        """How many there are."""
        return len(self.metrics) + len(self.params) + len(self.tags)

    def halves(self) -> List[Batch]:
        """The same in two parts, to find what a server refuses of it; none of a single entry."""
        kinds = [
            Batch(metrics=self.metrics), Batch(params=self.params), Batch(tags=self.tags),
        ]  # fmt: skip
        filled = [batch for batch in kinds if batch.entries]
        if len(filled) > 1:
            return filled
        half = self.entries // 2
        if not half:
            return []
        return [
            Batch(self.metrics[:half], self.params[:half], self.tags[:half]),
            Batch(self.metrics[half:], self.params[half:], self.tags[half:]),
        ]


def plain(text: str, longest: int) -> str:
    """A text that a database can hold, cut."""
    text = text[:longest].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return text if len(text) <= longest else text[:longest]


def name_of(text: str) -> str:
    """A name of a metric, parameter or tag that MLflow accepts."""
    parts = [part.strip() for part in _ODD.sub("_", text[:LONGEST_NAME]).split("/")]
    return "/".join(part for part in parts if part.strip(".")) or "_"


class Names:
    """Names as MLflow accepts them, different where the given ones are; a bounded number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: Dict[str, str] = {}
        self._taken: Dict[str, None] = {}

    def find(self, text: str) -> Optional[str]:
        """The name for a text; None beyond the number."""
        known = self._known.get(text)
        if known is not None or len(self._known) >= self._most:
            return known
        name, number = name_of(text), 1
        made = name
        while made in self._taken:
            number += 1
            made = f"{name[: LONGEST_NAME - 8]}_{number}"
        self._known[text] = made
        self._taken[made] = None
        return made


def find_experiment(name: str) -> Request:
    return Request("experiments/get-by-name", None, (("experiment_name", name),))


def create_experiment(name: str) -> Request:
    return Request("experiments/create", {"name": name})


def find_runs(experiment_id: str, key: str) -> Request:
    """The run that a previous attempt or request made; two, if another has its key."""
    return Request(
        "runs/search",
        {
            "experiment_ids": [experiment_id],
            "filter": f"tags.`{KEY_TAG}` = '{key}'",
            "max_results": 2,
            "run_view_type": "ACTIVE_ONLY",
        },
    )


def create_run(
    experiment_id: str, name: str, user: str, start_ms: int, tags: Iterable[Tuple[str, str]]
) -> Request:
    known = {name_of(name): plain(text, LONGEST_TAG) for name, text in tags}
    return Request(
        "runs/create",
        {
            "experiment_id": experiment_id,
            "run_name": plain(name, LONGEST_RUN_NAME),
            "user_id": plain(user, LONGEST_NAME),
            "start_time": start_ms,
            "tags": _pairs(known.items()),
        },
    )


def log_batch(run_id: str, batch: Batch) -> Request:
    body: Dict[str, Any] = {"run_id": run_id}
    if batch.metrics:
        body["metrics"] = [
            {"key": key, "value": value, "timestamp": timestamp_ms, "step": step}
            for key, value, timestamp_ms, step in batch.metrics
        ]
    if batch.params:
        body["params"] = _pairs(batch.params)
    if batch.tags:
        body["tags"] = _pairs(batch.tags)
    return Request("runs/log-batch", body)


def resume_run(run_id: str) -> Request:
    return Request("runs/update", {"run_id": run_id, "status": "RUNNING"})


def end_run(run_id: str, state: str, end_ms: int) -> Request:
    """``state`` is the job's."""
    status = _STATUS.get(state, "FAILED")
    return Request("runs/update", {"run_id": run_id, "status": status, "end_time": end_ms})


def read_experiment(answer: Answer) -> str:
    """The id of an experiment; empty where the answer has none."""
    found = _object(answer.body.get("experiment"))
    return _id(found.get("experiment_id") or answer.body.get("experiment_id"))


def read_run(answer: Answer) -> str:
    """The id of a run that was made; empty where the answer has none."""
    info = _object(_object(answer.body.get("run")).get("info"))
    return _id(info.get("run_id") or info.get("run_uuid"))


def read_found_runs(answer: Answer) -> List[str]:
    """The ids of the runs that were found."""
    runs = answer.body.get("runs")
    found = [read_run(Answer(200, {"run": run})) for run in runs] if isinstance(runs, list) else []
    return [run_id for run_id in found if run_id]


def read_answer(status: int, body: bytes, retry_after: str = "") -> Answer:
    """An answer from its bytes, whatever they are."""
    try:
        found: Mapping[str, Any] = read_object(body)
    except ValueError:
        found = {}
    wait = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    return Answer(status, found, retry_after_s=wait)


def encode(body: Mapping[str, Any]) -> bytes:
    """A request's body."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def _pairs(items: Iterable[Tuple[str, str]]) -> List[Dict[str, str]]:
    return [{"key": key, "value": value} for key, value in items]


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _id(value: Any) -> str:
    """An id that can stand in a path, a variable and a text."""
    text = str(value) if isinstance(value, (str, int)) else ""
    return text if _RUN_ID.fullmatch(text) else ""
