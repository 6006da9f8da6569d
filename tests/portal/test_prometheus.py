"""What the portal gives to Prometheus: figures of jobs, targets, jobs that run now."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.portal.fakes import NASTY, FakePortal, a_row, a_source, a_task
from tony_core.portal.monitoring import OTHER, Monitoring, count_live
from tony_core.portal.viewer import Viewer


def test_figures_of_a_job_are_its_page_s() -> None:
    tasks = (a_task("worker:0", reported={NASTY: 0.5, "loss": 1.0}, state="running"),)
    portal = FakePortal(a_source(running=True, tasks=tasks))
    with portal.client() as client:
        answer = client.get("/jobs/application_1_0001/api/prometheus")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        found = {each.name: each.samples for each in text_string_to_metric_families(answer.text)}
        assert {each.labels["name"] for each in found["tony_task_reported"]} == {NASTY, "loss"}
        assert found["tony_job_waiting_seconds"][0].value == 3.0
        assert client.get("/jobs/application_1_0009/api/prometheus").status_code == 404
        portal.viewer = Viewer("ben", frozenset())
        assert client.get("/jobs/application_1_0001/api/prometheus").status_code == 404


def test_targets_are_the_running_jobs_of_the_viewer() -> None:
    rows = [a_row(number, state="RUNNING", finished=None) for number in range(3)]
    rows += [a_row(5), a_row(6, state="RUNNING", finished=None, readers=("user:ben",))]
    portal = FakePortal(*(a_source(row) for row in rows))
    with portal.client() as client:
        found = client.get("/prometheus/targets", headers={"host": "portal.example:8"}).json()
        assert {each["labels"]["instance"] for each in found} == {
            f"application_1_{number:04d}" for number in range(3)
        }
        (target,) = found[0]["targets"]
        assert target == "portal.example:8"
        for each in found:
            assert all(isinstance(value, str) for value in each["labels"].values())
            path = each["labels"]["__metrics_path__"]
            assert client.get(path).status_code == 200
            assert each["labels"]["__scheme__"] == "http"
        assert client.get("/prometheus/targets?state=FAILED").status_code == 400


def test_of_several_locations_each_job_is_a_target_of_its_own() -> None:
    rows = [a_row(1, state="RUNNING", finished=None, location=each) for each in ("here", "there")]
    portal = FakePortal(*(a_source(row) for row in rows), locations=("here", "there"))
    with portal.client() as client:
        found = client.get("/prometheus/targets").json()
        places = [each["labels"]["__param_location"] for each in found]
        assert sorted(places) == ["here", "there"]
        for each, place in zip(found, places, strict=True):
            path = each["labels"]["__metrics_path__"]
            assert client.get(path, params={"location": place}).status_code == 200


def test_targets_are_bounded() -> None:
    rows = (a_row(number, state="RUNNING", finished=None) for number in range(300))
    portal = FakePortal(*(a_source(row) for row in rows))
    with portal.client() as client:
        found = client.get("/prometheus/targets").json()
    assert len({each["labels"]["instance"] for each in found}) == len(found) >= 200
    assert len(portal.index.asked) <= 11, "whatever the cursor says"


def test_jobs_by_state_queue_and_user() -> None:
    made = Monitoring()
    jobs = [("RUNNING", "ml", "ann"), ("RUNNING", "ml", "ann"), ("ACCEPTED", NASTY, "ben")]
    made.watch(lambda: "", dict, lambda: jobs)
    for _ in range(2):
        body, _ = made.exposition(0)
        found = {each.name: each.samples for each in text_string_to_metric_families(body.decode())}[
            "tony_jobs"
        ]
        counts = {tuple(each.labels.values()): each.value for each in found}
        labels = {key[1:] for key in counts} | {key[:1] for key in counts}
        assert sum(counts.values()) == 3 and labels
        values = {each.labels["user"]: each.value for each in found}
        assert values == {"ann": 2, "ben": 1}
    jobs.clear()
    assert b"tony_jobs{" not in made.exposition(0)[0], "a job that ended leaves no series"


def test_the_number_of_series_is_bounded() -> None:
    jobs = [("RUNNING", "q", f"user-{number}") for number in range(100)]
    jobs += [("RUNNING", "q", "ann")] * 5
    found = count_live(jobs, most=10)
    assert len(found) == 11
    assert found["RUNNING", "q", "ann"] == 5
    assert found["RUNNING", OTHER, OTHER] == 91
    assert sum(found.values()) == 105
