"""The page that starts an ended job's TensorBoard and leads to it."""

from __future__ import annotations

from typing import Optional

from tests.portal.fakes import NASTY, FakePortal, a_row, a_source
from tony_core.history.configuration import ConfigEntry
from tony_core.portal.index.rows import JobRow
from tony_core.portal.tensorboard import KEY, Instance, InstanceState
from tony_core.portal.viewer import Viewer

PAGE = "/jobs/application_1_0001/tensorboard"


class FakeOpener:
    """One instance, as a test wants it."""

    def __init__(self) -> None:
        self.instance: Optional[Instance] = None
        self.opened = 0

    def open(self, row: JobRow, viewer: Viewer) -> Instance:
        self.opened += 1
        self.instance = self.instance or Instance(InstanceState.COPYING)
        return self.instance

    def look(self, row: JobRow, viewer: Viewer) -> Optional[Instance]:
        return self.instance

    def url_of(self, path: str, host: str) -> str:
        return f"http://{host}:7007{path}"


def test_from_the_button_to_tensorboard() -> None:
    tensorboards = FakeOpener()
    source = a_source()
    source.entries = (ConfigEntry(KEY, "/logs"),)
    client = FakePortal(source, tensorboards=tensorboards).client()
    assert f'href="{PAGE}">TensorBoard' in client.get("/jobs/application_1_0001/").text
    page = client.get(PAGE)
    assert 'value="the-token"' in page.text and "Start TensorBoard" in page.text
    assert tensorboards.opened == 0, "a look starts nothing"
    assert client.get("/jobs/application_1_0001/api/tensorboard").json()["state"] == "none"

    answer = client.post(PAGE, data={"csrf": "the-token"})
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
    assert tensorboards.opened == 1
    page = client.get(PAGE)
    assert 'http-equiv="refresh"' in page.text and "being copied" in page.text
    tensorboards.instance = Instance(InstanceState.READY, "", "/secret/")
    answer = client.get(PAGE)
    assert answer.status_code == 303
    assert answer.headers["location"] == "http://testserver:7007/secret/"
    found = client.get("/jobs/application_1_0001/api/tensorboard").json()
    assert (found["state"], found["url"]) == ("ready", "http://testserver:7007/secret/")


def test_a_failure_is_named_as_text_and_can_be_tried_again() -> None:
    tensorboards = FakeOpener()
    tensorboards.instance = Instance(InstanceState.FAILED, NASTY)
    page = FakePortal(a_source(), tensorboards=tensorboards).client().get(PAGE)
    assert "Try again" in page.text and "refresh" not in page.text
    assert "<script>alert" not in page.text and "&lt;script&gt;alert" in page.text


def test_only_of_jobs_that_the_viewer_may_see() -> None:
    tensorboards = FakeOpener()
    portal = FakePortal(a_source(a_row(readers=("user:bob",))), tensorboards=tensorboards)
    assert portal.client().get(PAGE).status_code == 404
    assert portal.client().post(PAGE).status_code == 404
    assert tensorboards.opened == 0


def test_no_link_where_there_is_nothing_to_show() -> None:
    named = a_source()
    named.entries = (ConfigEntry(KEY, "/logs"),)
    running = a_source(running=True)
    running.entries = named.entries
    for source, opener in ((a_source(), FakeOpener()), (running, FakeOpener()), (named, None)):
        client = FakePortal(source, tensorboards=opener).client()
        text = client.get("/jobs/application_1_0001/").text
        assert f'href="{PAGE}"' not in text
    assert FakePortal(named).client().get(PAGE).status_code == 404
