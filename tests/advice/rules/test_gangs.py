"""Tasks of a gang against each other: stragglers, parameter servers, sizes."""

from __future__ import annotations

from typing import Any, Dict, Optional

import pytest

from tests.advice.jobs import RIGHT, JobBuilder, config, found, job, names, values


def paced(rate: float) -> Any:
    return lambda s: rate * s


# ------------------------------------------------------------------ stragglers


@pytest.mark.parametrize(
    ("speed", "severity"), [(0.85, None), (0.75, "low"), (0.65, "moderate"), (0.55, "severe"),
                            (0.4, "critical")]
)  # fmt: skip
def test_a_task_that_does_fewer_steps(speed: float, severity: Optional[str]) -> None:
    slow = {"worker:2": {"step": paced(2 * speed)}}
    uses = {"worker": {**RIGHT, "step": paced(2.0)}, **slow}
    advice = found(job(uses, roles={"worker": {"instances": 4}}))
    assert [each.severity for each in advice] == ([severity] if severity else [])
    for each in advice:
        assert (each.rule, each.about) == ("straggler", "worker:2")
        assert each.evidence["node"] == "n1" and "n1" in each.problem
        assert each.saving["duration_s"] == pytest.approx((1 - speed) * 1200, rel=0.02)
        assert each.evidence["steps per s of its peers"] == pytest.approx(2.0)


@pytest.mark.parametrize(("metric", "slow"), [("step_time_ms", 200.0), ("samples_per_s", 50.0)])
def test_a_gang_in_lock_step_shows_it_in_what_it_reports(metric: str, slow: float) -> None:
    uses = {"worker": {**RIGHT, metric: 100.0}, "worker:1": {metric: slow}}
    (advice,) = found(job(uses, roles={"worker": {"instances": 3}}))
    assert (advice.rule, advice.about, advice.severity) == ("straggler", "worker:1", "severe")
    assert advice.evidence[f"{metric} of worker:1"] == slow


def test_half_of_them_slow_is_another_kind_of_job() -> None:
    uses = {"worker": {**RIGHT, "step": paced(2.0)},
            **{f"worker:{i}": {"step": paced(1.0)} for i in range(3)}}  # fmt: skip
    assert names(job(uses, roles={"worker": {"instances": 5}})) == []


def test_too_short_or_too_few_steps_is_silent() -> None:
    uses = {"worker": RIGHT, "worker:1": {"step": paced(0.2)}}
    assert names(job(uses, seconds=250)) == []
    record = job(uses)
    for series in record.metrics["task"].values():
        series["step"] = series["step"][:8]
    assert names(record) == []


def test_tasks_that_do_not_wait_for_each_other_lose_no_time_of_the_gang() -> None:
    record = job({"worker": RIGHT, "worker:1": {"step": paced(0.5)}})
    record.job["mode"] = "FCFS"  # type: ignore[index]
    assert found(record)[0].saving == {}


# ------------------------------------------------------------------ servers


def served(server: float, worker: float) -> Any:
    uses: Dict[str, Any] = {"worker": {**RIGHT, "cpu_percent": 400 * worker},
                            "ps": {"rss_mb": 3500.0, "cpu_percent": 400 * server}}  # fmt: skip
    roles = {"worker": {"vcores": 4, "instances": 6}, "ps": {"vcores": 4, "instances": 1}}
    return job(uses, roles=roles)


def test_a_server_that_all_wait_for() -> None:
    (advice,) = found(served(0.98, 0.25), config(tony_ps_instances="1"))
    assert (advice.rule, advice.about, advice.severity) == ("parameter-servers", "ps", "severe")
    assert advice.changes == (("tony.ps.instances", "2", "1"),)


@pytest.mark.parametrize(("server", "worker"), [(0.6, 0.25), (0.98, 0.7)])
def test_a_server_with_time_or_busy_workers_are_right(server: float, worker: float) -> None:
    assert "parameter-servers" not in names(served(server, worker))


# ------------------------------------------------------------------ sizes


def resized(sizes: Dict[int, float]) -> Any:
    """An elastic job: size -> steps in a second."""
    most = max(sizes)
    builder = JobBuilder({"worker": {"instances": most, "gpus": 1}})
    builder.job["elastic"] = {"worker": {"there": most, "least": 1, "most": most}}
    for size, rate in sizes.items():
        tasks = [f"worker:{index}" for index in range(size)]
        builder.start(tasks=tasks)
        builder.line("elastic", f"{size} begin", role="worker", size=size)
        builder.run(900, {"worker": {**RIGHT, "step": paced(rate)}}, tasks)
        builder.line("round", "a new round")
    return builder.move("succeeded").finish()


@pytest.mark.parametrize(
    ("sizes", "severity"),
    [({2: 1.0, 8: 3.9}, "low"), ({2: 1.0, 8: 3.0}, None), ({2: 1.0, 8: 2.2}, "low"),
     ({2: 1.0, 8: 1.35}, "severe"), ({2: 1.0, 16: 1.35}, "critical"), ({2: 1.0, 8: 0.7}, None),
     ({2: 1.0, 8: 0.25}, "critical")],
)  # fmt: skip
def test_speed_up(sizes: Dict[int, float], severity: Optional[str]) -> None:
    advice = found(resized(sizes), rule="scaling")
    assert [each.severity for each in advice] == ([severity] if severity else [])
    for each in advice:
        most = max(sizes)
        if sizes[most] > 3.5:
            assert not each.changes and "more than 8" in each.todo
        else:
            assert values(each) == {"tony.worker.instances": "2"}
            slower = f"takes {sizes[most] / sizes[2]:.1f} times as long"
            assert (slower in each.todo) == (sizes[most] > sizes[2]), "the price of it is named"
            assert 0 < each.saving["gpu_hours"] < most * 900 / 3600


@pytest.mark.parametrize("rate", [0.55, 0.97, 0.999, 1.0, 1.01, 1.05, 1.1, 1.25])
def test_steps_that_keep_their_time_are_no_speed_up(rate: float) -> None:
    """As they should, where each worker has a fixed batch."""
    assert found(resized({2: 1.0, 8: rate}), rule="scaling") == []


def test_one_size_is_silent() -> None:
    assert found(resized({4: 1.0}), rule="scaling") == []
