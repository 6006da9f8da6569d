"""The page that starts an ended job's TensorBoard and leads to it."""

from __future__ import annotations

from typing import Optional

from tests.portal.fakes import NASTY, FakePortal, a_row, a_source
from tony_core.portal.index.rows import JobRow
from tony_core.portal.job_source import ConfigEntry
from tony_core.portal.tensorboard import KEY, Board, BoardState
from tony_core.portal.viewer import Viewer

PAGE = "/jobs/application_1_0001/tensorboard"


class FakeBoards:
    """One board, as a test wants it."""

    def __init__(self) -> None:
        self.board: Optional[Board] = None
        self.opened = 0

    def open(self, row: JobRow, viewer: Viewer) -> Board:
        self.opened += 1
        self.board = self.board or Board(BoardState.COPYING)
        return self.board

    def look(self, row: JobRow, viewer: Viewer) -> Optional[Board]:
        return self.board

    def url_of(self, path: str, host: str) -> str:
        return f"http://{host}:7007{path}"


def test_from_the_button_to_tensorboard() -> None:
    boards = FakeBoards()
    source = a_source()
    source.entries = (ConfigEntry(KEY, "/logs"),)
    client = FakePortal(source, boards=boards).client()
    assert f'href="{PAGE}">TensorBoard' in client.get("/jobs/application_1_0001/").text
    page = client.get(PAGE)
    assert 'value="the-token"' in page.text and "Start TensorBoard" in page.text
    assert boards.opened == 0, "a look starts nothing"
    assert client.get("/jobs/application_1_0001/api/tensorboard").json()["state"] == "none"

    answer = client.post(PAGE, data={"csrf": "the-token"})
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
    assert boards.opened == 1
    page = client.get(PAGE)
    assert 'http-equiv="refresh"' in page.text and "being copied" in page.text
    boards.board = Board(BoardState.READY, "", "/secret/")
    answer = client.get(PAGE)
    assert answer.status_code == 303
    assert answer.headers["location"] == "http://testserver:7007/secret/"
    found = client.get("/jobs/application_1_0001/api/tensorboard").json()
    assert (found["state"], found["url"]) == ("ready", "http://testserver:7007/secret/")


def test_a_failure_is_named_as_text_and_can_be_tried_again() -> None:
    boards = FakeBoards()
    boards.board = Board(BoardState.FAILED, NASTY)
    page = FakePortal(a_source(), boards=boards).client().get(PAGE)
    assert "Try again" in page.text and "refresh" not in page.text
    assert "<script>alert" not in page.text and "&lt;script&gt;alert" in page.text


def test_only_of_jobs_that_the_viewer_may_see() -> None:
    boards = FakeBoards()
    portal = FakePortal(a_source(a_row(readers=("user:bob",))), boards=boards)
    assert portal.client().get(PAGE).status_code == 404
    assert portal.client().post(PAGE).status_code == 404
    assert boards.opened == 0


def test_no_link_where_there_is_nothing_to_show() -> None:
    named = a_source()
    named.entries = (ConfigEntry(KEY, "/logs"),)
    running = a_source(running=True)
    running.entries = named.entries
    for source, boards in ((a_source(), FakeBoards()), (running, FakeBoards()), (named, None)):
        text = FakePortal(source, boards=boards).client().get("/jobs/application_1_0001/").text
        assert f'href="{PAGE}"' not in text
    assert FakePortal(named).client().get(PAGE).status_code == 404
