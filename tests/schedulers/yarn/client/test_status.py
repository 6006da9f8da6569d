"""YARN's words on applications, in ours."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId
from tony_core.hadoop.yarn.messages.reports import ApplicationReport
from tony_core.hadoop.yarn.records import AppReport
from tony_core.schedulers.port import AppState
from tony_core.schedulers.yarn.application_state import final_diagnostics, final_status, state_of
from tony_core.schedulers.yarn.client.rest import parse_report
from tony_core.schedulers.yarn.client.status import explain_pending, status_of

APP = ApplicationId.parse("application_1700000000000_0042")


def report(state: str = "RUNNING", final: str = "UNDEFINED", **more: Any) -> AppReport:
    empty = AppReport.from_message(ApplicationReport(application_id=APP.to_message()))
    return empty._replace(
        name="mnist",
        user="ada",
        queue="ml",
        type="TONY",
        state=state,
        final_status=final,
        **more,
    )


@pytest.mark.parametrize(
    ("state", "final", "diagnostics", "means"),
    [
        ("NEW", "UNDEFINED", "", "SUBMITTED"),
        ("NEW_SAVING", "UNDEFINED", "", "SUBMITTED"),
        ("SUBMITTED", "UNDEFINED", "", "SUBMITTED"),
        ("ACCEPTED", "UNDEFINED", "", "ACCEPTED"),
        ("RUNNING", "UNDEFINED", "", "RUNNING"),
        ("FINISHED", "SUCCEEDED", "", "SUCCEEDED"),
        ("FINISHED", "ENDED", "", "SUCCEEDED"),
        ("FINISHED", "FAILED", "worker:0 exited with 1", "FAILED"),
        ("FINISHED", "FAILED", "timed out: after 60 s", "TIMED_OUT"),
        ("FINISHED", "KILLED", "its client is gone", "KILLED"),
        ("FINISHED", "UNDEFINED", "", "FAILED"),
        ("FAILED", "FAILED", "AM Container exited with exitCode: 1", "FAILED"),
        ("KILLED", "KILLED", "Application killed by user ada", "KILLED"),
        (
            "KILLED",
            "KILLED",
            "Application is killed by ResourceManager as it has exceeded the lifetime period.",
            "TIMED_OUT",
        ),
        ("12", "UNDEFINED", "", "SUBMITTED"),  # an unknown state has not ended
    ],
)
def test_states(state: str, final: str, diagnostics: str, means: str) -> None:
    assert state_of(report(state, final, diagnostics=diagnostics)) is AppState(means)


@pytest.mark.parametrize("state", [state for state in AppState if state.ended])
def test_a_masters_final_diagnostics_come_back(state: AppState) -> None:
    reported = report(
        "FINISHED", final_status(state), diagnostics=final_diagnostics(state, "because")
    )
    assert status_of(reported).state is state
    assert status_of(reported).diagnostics == "because"


def test_a_running_one() -> None:
    url = "http://rm:8088/proxy/application_1700000000000_0042/"
    status = status_of(
        report(
            tracking_url=url,
            submitted=10.0,
            launched=12.0,
            progress=0.25,
            attempt=AttemptId(APP, 2),
            tags=("a", "b"),
        )
    )
    assert (status.page_url, status.tracking_url) == (url, url)
    assert (status.submitted, status.started, status.finished) == (10.0, 12.0, None)
    assert (status.attempt, status.progress, status.tags) == (2, 0.25, ("a", "b"))


def test_only_a_running_one_has_a_page() -> None:
    for state in ("ACCEPTED", "FINISHED", "KILLED"):
        assert status_of(report(state, tracking_url="http://rm/x")).page_url is None


def test_an_ended_one_has_an_end() -> None:
    status = status_of(report("FINISHED", "SUCCEEDED", finished=99.0))
    assert (status.finished, status.progress) == (99.0, 1.0)


@pytest.mark.parametrize(
    ("state", "final", "reported", "progress"),
    [
        ("KILLED", "KILLED", 1.0, 0.0),
        ("FINISHED", "FAILED", 1.0, 0.0),
        ("FAILED", "FAILED", 0.4, 0.4),
        ("RUNNING", "UNDEFINED", 1.0, 1.0),
    ],
)
def test_what_is_over_has_not_come_to_its_end(
    state: str, final: str, reported: float, progress: float
) -> None:
    assert status_of(report(state, final, progress=reported)).progress == progress


AM_LIMIT = (
    "[Sat Nov 21 13:45:59 +0000 2026] Application is added to the scheduler and is not yet"
    " activated. Queue's AM resource limit exceeded.  Details : AM Partition ="
    " <DEFAULT_PARTITION>; AM Resource Request = <memory:512, vCores:1>; Queue Resource Limit for"
    " AM = <memory:384, vCores:6, yarn.io/gpu: 0>; User AM Resource Limit of the queue ="
    " <memory:384, vCores:6>; Queue AM Resource Usage = <memory:512, vCores:1>; "
)
USER_LIMIT = AM_LIMIT.replace("Queue's AM resource", "User's AM resource")
NO_ROOM = (
    "[Sat Nov 21 13:45:59 +0000 2026] Application is Activated, waiting for resources to be"
    " assigned for AM.  Details : AM Partition = gpu ; Partition Resource = <memory:16384,"
    " vCores:256> ; Queue's Absolute capacity = 40.0 % ; Queue's Absolute used capacity = 100.0 %"
    " ; Queue's Absolute max capacity = 100.0 % ; Queue's capacity (absolute resource) ="
    " <memory:6553, vCores:102> ; Queue's used capacity (absolute resource) = <memory:16384,"
    " vCores:30> ; Queue's max capacity (absolute resource) = <memory:16384, vCores:256> ; "
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            AM_LIMIT,
            "waits: the masters of the queue tiny may hold 384 MB of memory, 6 vcores together,"
            " they hold 512 MB of memory, 1 vcore, and this one wants 512 MB of memory, 1 vcore",
        ),
        (
            USER_LIMIT,
            "waits: one user's masters may hold 384 MB of memory, 6 vcores in the queue tiny,"
            " all masters there hold 512 MB of memory, 1 vcore, and this one wants 512 MB of"
            " memory, 1 vcore",
        ),
        (
            NO_ROOM,
            "waits for room in the queue tiny: on the nodes labelled gpu, it holds 100.0 % of the"
            " 100.0 % of the cluster that it may have, its own share is 6553 MB of memory,"
            " 102 vcores, the cluster has 16384 MB of memory, 256 vcores",
        ),
        (
            "Application is added to the scheduler and is not yet activated. The sun is too low.",
            "waits in the queue tiny: The sun is too low",
        ),
        (
            "[x] AM container is launched, waiting for AM container to Register with RM",
            "its master's container is being started",
        ),
    ],
)
def test_why_it_waits(text: str, words: str) -> None:
    assert explain_pending(text, "tiny") == words
    assert status_of(report("ACCEPTED", diagnostics=text)).diagnostics == words.replace(
        "tiny", "ml"
    )


def test_other_diagnostics_of_yarn_stay() -> None:
    assert explain_pending("", "ml") is None
    reported = report("ACCEPTED", diagnostics="Whatever a next version says")
    assert status_of(reported).diagnostics == "Whatever a next version says"


def test_a_running_one_waits_no_more() -> None:
    assert status_of(report("RUNNING", diagnostics=AM_LIMIT)).diagnostics == ""


def test_the_web_server_reports_the_same() -> None:
    reported: Dict[str, Any] = {
        "id": str(APP),
        "user": "ada",
        "name": "mnist",
        "queue": "root.ml",
        "state": "RUNNING",
        "finalStatus": "UNDEFINED",
        "progress": 25.0,
        "trackingUrl": "http://rm:8088/proxy/application_1700000000000_0042/",
        "diagnostics": "",
        "applicationType": "TONY",
        "applicationTags": "b,a",
        "startedTime": 10_000,
        "launchTime": 12_000,
        "finishedTime": 0,
        "amContainerLogs": "http://n:1/node/containerlogs/container_1700000000000_0042_02_000001/a",
        "allocatedMB": 512,
        "allocatedVCores": 1,
        "runningContainers": 1,
    }
    status = status_of(parse_report(reported))
    assert (status.state, status.attempt, status.tags) == (AppState.RUNNING, 2, ("a", "b"))
    assert (status.submitted, status.started, status.finished) == (10.0, 12.0, None)
    assert status.progress == 0.25
    assert status.page_url == reported["trackingUrl"]
    assert not status.view_refusal
    strangers = status_of(parse_report({**reported, "startedTime": 0}), "bob")
    assert strangers.view_refusal.startswith(f"bob may not look at {reported['id']}, which belongs")
    waits = {**reported, "state": "ACCEPTED", "trackingUrl": "UNASSIGNED", "amContainerLogs": None}
    assert status_of(parse_report(waits)).tracking_url is None
    assert status_of(parse_report(waits)).attempt == 0
