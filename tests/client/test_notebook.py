"""How long a notebook that is served here waits for a tunnel that is lost."""

from __future__ import annotations

from typing import Callable, Generator, List

import pytest

from tests.client.scripted import APP, Scripted, status
from tony_core.client import notebook
from tony_core.client.errors import TunnelError
from tony_core.client.notebook import READY_S, Notebook, listen_here
from tony_core.client.tunnel import ClientStream
from tony_core.protocol.reactor import Reactor

pytestmark = pytest.mark.timeout(60)

Story = Generator[Callable[[], object], None, None]
"""What happens; it goes on when what it yields is true."""


class Clock(Reactor):
    """Its time can be put forward."""

    offset_s = 0.0

    def now(self) -> float:
        return super().now() + self.offset_s


class Tunnels:
    """Opens tunnels that answer or are silent, or opens none; and serves a notebook by them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(notebook, "ASK_S", 0.01)
        monkeypatch.setattr(notebook, "open_tunnel", self._open)
        self.clock = Clock()
        self.opens = self.answers = True
        self.opened = self.tries = self.asked = self.answered = 0
        self.ready: List[str] = []
        self.notes: List[str] = []
        self.lose: Callable[[str], None]

    def _open(
        self, scheduler: object, app: str, reactor: Reactor, lost: Callable[[str], None]
    ) -> Tunnels:
        self.tries += 1
        if not self.opens:
            raise TunnelError("no route to the master")
        self.opened += 1
        self.lose = lost
        return self

    def open(self, stream: ClientStream, message: object) -> None:
        self.asked += 1
        if self.answers:
            self.clock.call_later(0, self._answer, stream)

    def _answer(self, stream: ClientStream) -> None:
        stream.opened("t0ken")
        self.answered += 1

    def close(self) -> None:
        pass

    def serve(self, story: Story) -> Notebook:
        """Serve until the story's end, or the notebook's."""
        scheduler = Scripted("", status())
        book = Notebook(
            self.clock, lambda: scheduler, APP, listen_here(0), self.ready.append, self.notes.append
        )

        def go_on(until: Callable[[], object]) -> None:
            try:
                while until():
                    until = next(story)
            except StopIteration:
                book.stop()
            else:
                self.clock.call_later(0.002, go_on, until)

        self.clock.call_later(0, go_on, lambda: True)
        try:
            book.run()
        finally:
            self.clock.close()
        return book


@pytest.fixture
def tunnels(monkeypatch: pytest.MonkeyPatch) -> Tunnels:
    return Tunnels(monkeypatch)


def tries_more(tunnels: Tunnels, count: int = 3) -> Callable[[], bool]:
    wanted = tunnels.tries + count
    return lambda: tunnels.tries >= wanted


def test_one_that_was_open_for_hours_has_the_whole_wait_after_a_loss(tunnels: Tunnels) -> None:
    def story() -> Story:
        yield lambda: tunnels.ready
        for _ in range(2):
            tunnels.clock.offset_s += 10 * READY_S  # kept-alive connections: no stream opens
            tunnels.opens = False
            tunnels.lose("it was cut")
            yield tries_more(tunnels)
            tunnels.clock.offset_s += READY_S - 30
            yield tries_more(tunnels)
            answered, tunnels.opens = tunnels.answered, True
            yield lambda: tunnels.answered > answered  # noqa: B023

    tunnels.serve(story())
    assert len(tunnels.ready) == 1, "its token is the same"
    assert tunnels.notes.count("the connection to the job was lost (it was cut); trying again") == 2


def test_one_that_is_not_opened_again_has_a_deadline(tunnels: Tunnels) -> None:
    def story() -> Story:
        yield lambda: tunnels.ready
        tunnels.opens = False
        tunnels.lose("it was cut")
        yield tries_more(tunnels)
        tunnels.clock.offset_s += READY_S
        yield tries_more(tunnels)

    with pytest.raises(TunnelError, match=r"its master did not answer within 300 s: no route to"):
        tunnels.serve(story())


@pytest.mark.parametrize("was_open", [True, False])
def test_one_that_is_lost_again_and_again_has_a_deadline(tunnels: Tunnels, was_open: bool) -> None:
    def story() -> Story:
        tunnels.answers = was_open
        yield lambda: tunnels.asked
        yield lambda: not was_open or tunnels.ready
        tunnels.answers = False
        tunnels.clock.offset_s += READY_S / 2
        for number in range(9):
            tunnels.lose(f"it was cut, {number}")
            opened = tunnels.opened
            yield lambda: tunnels.opened > opened  # noqa: B023
            tunnels.clock.offset_s += READY_S / 2

    with pytest.raises(
        TunnelError, match=r"did not answer within 300 s: it was cut, \d$"
    ) as caught:
        tunnels.serve(story())
    last = tunnels.notes[-1]
    assert 1 < tunnels.opened <= 4 and "trying again" in last
    assert str(caught.value)[-13:] not in last, "no try follows the end"
