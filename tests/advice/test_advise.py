"""What holds for all rules together: right jobs, odd records, advice that agrees with itself."""

from __future__ import annotations

import ast
import copy
import json
import math
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from hypothesis import strategies as st

from tests.advice.jobs import RIGHT, JobBuilder, config, job, names
from tests.fuzzing import fuzz, mutations
from tony_core.advice import rules
from tony_core.advice.advice import SEVERITIES
from tony_core.advice.advise import advise
from tony_core.advice.thresholds import LeastEvidence
from tony_core.history.figures import NAMES
from tony_core.history.reader import JobHistory
from tony_core.job.units import parse_memory_mb

#: Lets every rule speak, however little there is.
LITTLE = LeastEvidence(
    run_s=1, samples=1, steps=2, unfinished_s=1, wait_s=1, staging_s=1, lost_s=1, unsaved_s=1,
    retried_s=1, gap_s=0,
)  # fmt: skip
ODD: List[Any] = [
    None, True, 0, -1, 0.5, 1e12, 1e300, -1e300, 10**39, 1e-300, "", "x", "9" * 30, "worker:0",
    "ps:0", "\x1b[2J", [], {}, [[1]], [[1, 2]], {"a": 1}, ["x"], float("nan"), float("inf"),
]  # fmt: skip
#: The rules that speak of :func:`busy_job`.
SPEAKS = {
    "gpu-memory", "heartbeats", "lost-work", "memory-limit", "parameter-servers", "retries",
    "staging", "straggler", "waiting",
}  # fmt: skip
CONFIG = config(tony_worker_memory="8g", tony_worker_vcores="8", tony_worker_instances="3")


def busy_job() -> JobHistory:
    """A small record with something of everything."""
    roles = {
        "worker": {"instances": 3, "gpus": 2, "vcores": 8, "memory_mb": 16384},
        "ps": {"instances": 1, "vcores": 1},
        "evaluator": {"instances": 1, "memory_mb": 3000},
    }
    builder = JobBuilder(roles)
    builder.job["elastic"] = {"worker": {"there": 3, "least": 1, "most": 3}}
    use = {
        "worker": {**RIGHT, "gpu_percent": 20.0, "gpu_memory_mb": 500.0, "step_time": 2.0,
                   "gpu_memory_total_mb": 80_000.0, "saved": 1.0, "heartbeat_gap_s": 20.0},
        "worker:2": {"step_time": 9.0},
        "ps": {"rss_mb": 4090.0, "cpu_percent": 99.0},
    }  # fmt: skip
    for size in (3, 2, 2):
        builder.start(waits=30.0, stages=30.0)
        builder.line("waiting", "the queue is full")
        builder.line("elastic", "begin", role="worker", size=size)
        builder.run(40.0, use)
        builder.fail("worker:0", "memory" if size == 3 else "exited", "KeyError")
    return builder.finish("FAILED")


def as_data(record: JobHistory) -> Dict[str, Any]:
    data: Dict[str, Any] = json.loads(json.dumps(record._asdict()))
    return data


def as_record(data: Dict[str, Any]) -> JobHistory:
    data = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
    return JobHistory(**data)


def places(data: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """Where something could be replaced."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for name, value in items:
        yield (*path, name)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, name))


SAMPLE = as_data(busy_job())
PLACES = [
    path for path in places({key: SAMPLE[key] for key in ("job", "tasks", "metrics", "events")})
    # Of a series the first points are enough.
    if not (path[0] == "metrics" and len(path) > 4 and path[4] > 2)
]  # fmt: skip


def check(record: JobHistory, data: bytes = CONFIG, least: LeastEvidence = LITTLE) -> None:
    """What advice is, whatever it was made of."""
    found = advise(record, data, least=least)
    ranks = [SEVERITIES.index(each.severity) for each in found]
    assert ranks == sorted(ranks, reverse=True)
    keys = [change.key for each in found for change in each.changes]
    assert len(keys) == len(set(keys)), f"contradiction: {keys}"
    for each in found:
        json.dumps(each.to_json(), allow_nan=False)
        assert each.rule and each.problem and each.todo.endswith(".")
        assert set(each.saving) <= set(NAMES)
        assert all(math.isfinite(value) and value >= 0 for value in each.saving.values())
        for change in each.changes:
            assert change.value and "\n" not in change.key + change.value
            assert change.value != change.was


def test_a_right_job_gets_no_advice() -> None:
    assert names(job()) == []
    assert names(JobHistory("app_1")) == []


def test_much_is_found_in_the_sample() -> None:
    assert set(names(busy_job(), CONFIG, LITTLE)) == SPEAKS
    check(busy_job())


def test_the_table_of_the_documentation_has_every_rule() -> None:
    """And no other; the names are the first words of each ``Advice(...)``."""
    calls = [
        node
        for path in Path(rules.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Advice"
    ]
    every = {ast.literal_eval(call.args[0]) for call in calls}
    assert every > SPEAKS
    text = (Path(__file__).parents[2] / "docs" / "advice.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \|", text[text.index("## The rules") :], re.MULTILINE)
    assert sorted(rows) == sorted(every)


def test_a_record_that_was_cut_gives_no_advice() -> None:
    assert advise(busy_job()._replace(is_cut=True), least=LITTLE) == []


@pytest.mark.parametrize(
    "damaged",
    [
        JobHistory("app_1", job=[], tasks=None, metrics=7, events="x"),  # type: ignore[arg-type]
        JobHistory("app_1", {"roles": {"worker": 1}}, ({"task": "worker:0"},)),
        JobHistory("app_1", {"roles": {"a\nb": {"memory_mb": 1}}}, ({"task": "a\nb:0"},)),
    ],
)  # fmt: skip
def test_damaged_records(damaged: JobHistory) -> None:
    check(damaged)


@fuzz(
    changes=st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), min_size=1, max_size=8
    ),
    by_day=300,
    seconds=5.0,
)
def test_no_record_is_an_error(changes: List[Tuple[Tuple[Any, ...], Any]]) -> None:
    data = copy.deepcopy(SAMPLE)
    for path, odd in changes:
        inner: Any = data
        try:
            for name in path[:-1]:
                inner = inner[name]
            inner[path[-1]] = odd
        except (LookupError, TypeError):
            pass  # an outer part was replaced before
    check(as_record(data))


@fuzz(data=mutations(CONFIG))
def test_no_configuration_is_an_error(data: bytes) -> None:
    check(busy_job(), data)


@fuzz(
    memory=st.integers(1, 100_000), vcores=st.integers(1, 64), gpus=st.integers(0, 8),
    rss=st.floats(0, 100_000), cores=st.floats(0, 64), gpu=st.floats(0, 100),
    gpu_memory=st.floats(0, 80_000), slow=st.floats(0.01, 2), servers=st.floats(0, 2),
    by_day=60,
)  # fmt: skip
def test_rules_agree_with_each_other_and_with_the_next_run(
    memory: int, vcores: int, gpus: int, rss: float, cores: float, gpu: float, gpu_memory: float,
    slow: float, servers: float,
) -> None:  # fmt: skip
    use = {"rss_mb": rss, "cpu_percent": 100 * cores, "gpu_percent": gpu, "step": lambda s: s,
           "gpu_memory_mb": gpu_memory, "gpu_memory_total_mb": 80_000.0}  # fmt: skip
    uses: Dict[str, Any] = {
        "worker": use,
        "worker:1": {"step": lambda s: s * slow},
        "ps": {"cpu_percent": 100 * servers},
    }
    asked = {"memory_mb": memory, "vcores": vcores, "gpus": gpus}
    roles = {"worker": {**asked, "instances": 3}, "ps": {"vcores": 1, "instances": 1}}
    record = job(uses, seconds=400.0, roles=roles)
    check(record, b"", LeastEvidence())
    # With what was advised, and the same use, those keys stay as they are.
    facts = {"memory": "memory_mb", "vcores": "vcores", "gpus": "gpus"}
    changed = set()
    for each in advise(record):
        for key, value, _ in each.changes:
            _, role, name = key.split(".")
            if name in facts:
                changed.add(key)
                roles[role][facts[name]] = (
                    parse_memory_mb(value) if name == "memory" else int(value)
                )
    again = advise(job(uses, seconds=400.0, roles=roles))
    assert not changed & {change.key for each in again for change in each.changes}
