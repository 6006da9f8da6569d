"""The pages of comparison and trends, and the time line of a job, over parts in memory."""

from __future__ import annotations

import time
from typing import Any, List

import pytest

from tests.cli.schema import wrong_with
from tests.history.stories import StoryBuilder
from tests.history.test_compare import trained
from tests.history.test_trends import series
from tests.portal.fakes import NASTY, FakePortal, FakeSource, a_row, a_source
from tests.portal.test_app import JOB, Page
from tony_core.history.configuration import ConfigEntry
from tony_core.portal.index.rows import JobRow, Usage
from tony_core.portal.viewer import Viewer

TWO = "job=application_1_0001&job=application_1_0002"
DAG = "airflow:nightly.train"


def a_job(number: int, record: Any, memory: str = "2g", **row: Any) -> FakeSource:
    made = FakeSource(a_row(number, **row), record)
    made.entries = (ConfigEntry("tony.worker.memory", memory),)
    return made


def two_jobs() -> List[FakeSource]:
    return [
        a_job(1, trained(5, [5.0, 4.0, 3.0], result={"loss": 3.0, "model": NASTY})),
        a_job(2, trained(65, [5.0, 2.0]), memory=f"4g{NASTY}", name=NASTY),
    ]


# ------------------------------------------------------------------ compare


def test_two_jobs_side_by_side() -> None:
    with FakePortal(*two_jobs()).client() as client:
        answer = client.get(f"/compare?{TWO}")
        assert answer.status_code == 200
        page = Page(answer.text)
        assert {JOB, "/jobs/application_1_0002/"} <= set(page.links)
        assert "tony.worker.memory" in answer.text
        assert 'data-across="step"' in answer.text and "at step 100" in answer.text
        assert "1 min 05 s" in answer.text and page.tags.count("svg") == 3
        assert "steps per s" in answer.text and "speed-up" in answer.text
        by_time = client.get(f"/compare?{TWO}&by=time").text
        assert 'data-across="seconds"' in by_time and "after 20.0 s" in by_time


def test_hostile_texts_are_texts() -> None:
    with FakePortal(*two_jobs()).client() as client:
        text = client.get(f"/compare?{TWO}").text
        assert "<script>alert" not in text and "onerror" not in Page(text).tags
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_same_as_json() -> None:
    with FakePortal(*two_jobs()).client() as client:
        data = client.get(f"/api/compare?{TWO}").json()
        assert wrong_with(data, "compare") == []
        assert data["config"][0]["name"] == "tony.worker.memory"
        assert client.get("/api/compare").status_code == 400


def test_without_jobs_the_page_explains_how_to_choose_them() -> None:
    with FakePortal(a_source()).client() as client:
        for address in ("/compare", "/compare?job=application_1_0001"):
            answer = client.get(address)
            assert answer.status_code == 200 and "Choose 2 to 20 jobs" in answer.text


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("job=application_1_0001&job=gone", 404, "There is no job gone"),
        ("&".join(f"job={number}" for number in range(21)), 400, "21 jobs are named"),
        ("job=nope", 404, "There is no job nope"),
        (f"{TWO}&job=application_1_0001", 400, "application_1_0001 is named twice"),
        (f"{TWO}&by=colour", 400, "expected step or time"),
        (f"job=application_1_0001&job={NASTY[:8]}", 404, "There is no job"),
    ],
)
def test_what_cannot_be_compared(query: str, status: int, words: str) -> None:
    with FakePortal(*two_jobs()).client() as client:
        answer = client.get(f"/compare?{query}")
        assert answer.status_code == status and words in answer.text
        assert "<script>alert" not in answer.text


def test_another_users_job_cannot_be_compared() -> None:
    portal = FakePortal(*two_jobs(), viewer=Viewer("bob"))
    with portal.client() as client:
        assert client.get(f"/compare?{TWO}").status_code == 404


def test_a_job_that_two_locations_have_is_named_with_one() -> None:
    first, second = two_jobs()
    other = FakeSource(first.row._replace(location="there"), first.held)
    portal = FakePortal(first, second, other, locations=("here", "there"))
    with portal.client() as client:
        answer = client.get(f"/compare?{TWO}")
        assert answer.status_code == 400 and "job=there/application_1_0001" in answer.text
        query = "job=there/application_1_0001&job=application_1_0002"
        answer = client.get(f"/compare?{query}")
        assert answer.status_code == 200 and "location=there" in answer.text
        assert 'value="there/application_1_0001"' in client.get("/").text


def test_a_configuration_that_cannot_be_read_is_named() -> None:
    first, second = two_jobs()
    second.config = _fails  # type: ignore[method-assign]
    with FakePortal(first, second).client() as client:
        text = client.get(f"/compare?{TWO}").text
        assert "its configuration cannot be read: damaged" in text
        assert "The configuration of B is not known" in text


def _fails() -> Any:
    raise OSError("damaged")


# ------------------------------------------------------------------ trends


def nightly(slower_from: int = 20, runs: int = 30) -> List[FakeSource]:
    """A pipeline whose batches grew, and whose runs became slower by half with that."""
    noise, now = series(1, runs), time.time()
    found = []
    for number in range(runs):
        figures = {"duration_s": noise[number] + 30 * (number >= slower_from), "waiting_s": 2.0}
        row = a_row(number, pipeline=DAG, figures=figures, submitted=now - 86400 * (runs - number))
        made = FakeSource(row, StoryBuilder().finish())
        batch = "128" if number >= slower_from else "64"
        made.entries = (
            ConfigEntry("tony.containers.command", f"train.py --batch {batch}"),
            ConfigEntry("tony.application.tags", f"run{number}"),
        )
        found.append(made)
    return found


def test_the_run_that_changed_is_named_with_what_changed_in_its_configuration() -> None:
    with FakePortal(*nightly()).client() as client:
        answer = client.get(f"/trends?pipeline={DAG}")
        assert answer.status_code == 200
        card = answer.text.partition("<h2>What changed</h2>")[2].partition("<h2>Run by run")[0]
        assert Page(card).links == ["/jobs/application_1_0020/"]
        assert "<b>duration</b>: from " in card and "20 runs before and 10" in card
        assert "--batch 64" in card and "--batch 128" in card
        assert "tony.application.tags" not in card, "it differs in every run"
        data = client.get(f"/api/trends?pipeline={DAG}").json()
        assert wrong_with(data, "trends") == []
        (change,) = data["changes"]
        assert change["app_id"] == "application_1_0020"
        assert change["config"][0]["name"] == "tony.containers.command"


def test_nothing_is_named_where_nothing_changed() -> None:
    with FakePortal(*nightly(slower_from=99)).client() as client:
        text = client.get(f"/trends?pipeline={DAG}").text
        assert "Nothing that is more than chance" in text and "30 runs" in text


def test_a_change_without_one_in_the_configuration() -> None:
    sources = nightly()
    for source in sources:
        source.entries = source.entries[1:]
    with FakePortal(*sources).client() as client:
        text = client.get(f"/trends?pipeline={DAG}").text
        assert "Nothing that lasted changed in its configuration" in text
    sources[20].entries = ()
    with FakePortal(*sources).client() as client:
        text = client.get(f"/trends?pipeline={DAG}").text
        assert "What changed in its configuration is not known" in text


def test_the_trends_of_a_tag_and_since_a_time() -> None:
    jobs = [a_source(a_row(number, tags=("exp",), submitted=time.time() - 60)) for number in (1, 2)]
    with FakePortal(*jobs, a_source(a_row(3))).client() as client:
        assert "2 runs" in client.get("/trends?tag=exp").text
        assert "No run in this time" in client.get("/trends?tag=none").text
        assert client.get("/trends?tag=exp&since=never").status_code == 400
        assert client.get("/api/trends").status_code == 400


def test_anothers_runs_with_the_same_tag_are_not_mixed_in() -> None:
    """Anyone may give his job a tag, and show it to all."""
    sources = nightly()
    now, readers = time.time(), ("*",)
    for number in range(40, 90):
        figures = {"duration_s": 9000.0, "waiting_s": 2.0}
        row = a_row(number, owner="bob", readers=readers, pipeline=DAG, figures=figures,
                    submitted=now - 600 + number)  # fmt: skip
        sources.append(FakeSource(row, StoryBuilder().finish()))
    with FakePortal(*sources).client() as client:
        text = client.get(f"/trends?pipeline={DAG}").text
        assert "30 runs of ann" in text and "application_1_0040" not in text
        data = client.get(f"/api/trends?pipeline={DAG}").json()
        assert wrong_with(data, "trends") == [] and data["user"] == "ann"
        assert len(data["runs"]) == 30 and data["users"] == ["bob", "ann"]
        every = client.get(f"/trends?pipeline={DAG}&user=*").text
        assert "80 runs of everyone" in every and '<td data-label="User">bob</td>' in every
        assert len(client.get(f"/api/trends?pipeline={DAG}&user=bob").json()["runs"]) == 50
        Page(text), Page(every)
    with FakePortal(*sources[30:]).client() as client:
        assert "50 runs of bob" in client.get(f"/trends?pipeline={DAG}").text


def test_the_list_of_pipelines() -> None:
    portal = FakePortal(a_source())
    portal.index.sums = [Usage(DAG, 30, {"FAILED": 2}, {"gpu_hours": 4.5}, time.time())]
    with portal.client() as client:
        text = client.get("/trends").text
        assert f"/trends?pipeline={DAG.replace(':', '%3A')}&amp;since=90d" in text
        Page(text)


# ------------------------------------------------------------------ the time line of a job


def test_the_time_line_of_a_job() -> None:
    story = StoryBuilder().wait(2).begin().wait(3).move("launched").wait(5)
    story.move("running", ready_s=1.0).wait(60).move("failed", "worker:1", why=NASTY)
    story.line("root-cause", f"worker:1 {NASTY}", "worker:1").line("restarting")
    story.move("killed", "worker:0").begin(asks=False).wait(1).move("running").wait(10)
    story.tasks["x"] = {"task": NASTY, "role": "worker"}
    row = a_row(1)
    with FakePortal(FakeSource(row, story.move("succeeded").finish())).client() as client:
        text = client.get(JOB).text
        page = Page(text)
        part = text.partition('<section class="card timeline"')[2].partition("</section>")[0]
        assert page.tags.count("rect") == part.count("<rect") > 10
        assert "waiting for containers" in part and "What the restarts lost is not known" in part
        assert 'aria-label="queued 2.0 s, waiting 3.0 s, staging 5.0 s' in part
        assert "session 1" in part and "<script>alert" not in text
        data = client.get(f"{JOB}api/timeline").json()
        assert wrong_with(data, "timeline") == []
        assert data["sums"]["waiting"] == 3.0 and data["phases"][0]["kind"] == "queued"


def test_a_job_of_which_nothing_is_known_has_no_time_line() -> None:
    row: JobRow = a_row(1)
    with FakePortal(FakeSource(row, StoryBuilder().record())).client() as client:
        assert "Where the time went" not in client.get(JOB).text
