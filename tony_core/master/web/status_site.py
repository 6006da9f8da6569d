"""What readers see of a job, put together: facts, publisher, story, page and its server.

The page's port is open before the scheduler is told of the master, so that its address is
good when the first reader has it.
"""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Optional

from tony_core.history.store import HistoryWriter
from tony_core.job.spec import Job
from tony_core.loopback import loopback_address
from tony_core.master.masking import Masker
from tony_core.master.present import Facts
from tony_core.master.publish import Publisher
from tony_core.master.state.previous_attempt import Earlier
from tony_core.master.story import Story
from tony_core.master.web.proxy_gate import Gate
from tony_core.master.web.request import Request
from tony_core.master.web.routes import Page
from tony_core.master.web.server import WebServer
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.port import MasterContext


class Front:
    """The parts, each for whoever needs it."""

    def __init__(
        self,
        reactor: Reactor,
        context: MasterContext,
        job: Job,
        earlier: Earlier,
        history: HistoryWriter,
        masker: Masker,
        snapshot: Callable[[], Any],
        progress: Callable[[], float],
        written: Callable[[bytes, bool], None],
    ) -> None:
        # A scheduler may know better than a clock that was set back.
        offset = max(time.time() - reactor.now(), context.clock_offset or -math.inf)
        began = earlier.past.began or reactor.now() + offset
        self.host = context.host or loopback_address()
        self.bind = context.bind or self.host
        facts = Facts(
            app_id=context.app_id,
            attempt=context.attempt,
            user=job.user,
            queue=job.queue,
            submitted=began if context.submitted is None else context.submitted,
            started=began,
        )
        self.publisher = Publisher(reactor, job, facts, snapshot, progress, history, masker.clean)
        self.publisher.offset = offset
        self.story = Story(masker.clean, written)
        if earlier.segments:
            self.story.inherit(list(earlier.story))
        proxy = context.proxy
        gate = None if proxy is None else Gate(reactor, job.user, proxy)
        self._make_page(reactor, job, gate)
        self.publisher.url = self.url
        facts.links["page"] = self.url if proxy is None else proxy.public_url
        portal = job.history.portal_url
        if portal:
            facts.links["portal"] = f"{portal.rstrip('/')}/jobs/{facts.app_id}"
        for name, url in job.links:
            facts.links.setdefault(name, url)

    def _make_page(self, reactor: Reactor, job: Job, gate: Optional[Gate]) -> None:
        self.page = Page(
            reactor, job, self.publisher, self.story,
            hosts=(self.host,), bind=self.bind, gate=gate, log=self._note,
        )  # fmt: skip
        self.server = WebServer(
            reactor, self.bind, 0, self.page.handle, self._page_failed, self.page.screen
        )
        self.log: Optional[Callable[[str], None]] = None
        self.url = f"http://{self.address(self.server.port)}/"
        if gate is None:
            self.page.open_tensorboard = self._open_tensorboard
        else:
            self.page.open_tensorboard = lambda: f"{self.publisher.facts.links['page']}tensorboard/"

    def _open_tensorboard(self) -> str:
        """Where readers find TensorBoard: a port of its own, the same for as long as we live."""
        if self.page.tensorboard_port is None:
            port = self.server.open(self.bind, 0, self.page.handle_tensorboard)
            self.page.tensorboard_port = port
        return f"http://{self.address(self.page.tensorboard_port)}/"

    def address(self, port: int) -> str:
        """``HOST:PORT`` of this master, as a URL or an executor wants it."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def _page_failed(self, request: Request, error: Exception) -> None:
        self._note(f"{request.method} {request.target!r:.200}: {type(error).__name__}: {error}")

    def _note(self, text: str) -> None:
        if self.log is not None:
            self.log(text)
