"""The job's site, put together: publisher, story, page and its server.

The page's port is open before the scheduler learns of the master, so that its address answers
as soon as a reader has it.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Callable, List, Optional

from tony_core.history.layout import StoryKind
from tony_core.history.store import HistoryWriter
from tony_core.job.spec import Job
from tony_core.loopback import loopback_address
from tony_core.master.masking import Masker
from tony_core.master.publish import Publisher
from tony_core.master.session.commands import AddStoryLine, Level
from tony_core.master.state.previous_attempt import PreviousAttempt
from tony_core.master.story import Story
from tony_core.master.streams import StreamTable, TaskPlace
from tony_core.master.view import JobInfo
from tony_core.master.web.proxy_gate import ProxyGate
from tony_core.master.web.request import Request
from tony_core.master.web.routes import ClientListener, Page
from tony_core.master.web.server import Exchange, WebServer
from tony_core.master.web.tunnels import Tunnels
from tony_core.protocol.job_secret import unpack_secret
from tony_core.protocol.messages import Message
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.container_pool import MasterContext

if TYPE_CHECKING:
    from tony_core.master.session.state import State


class StatusSite:
    """A job's page on its server, with the publisher and the story that it shows."""

    def __init__(
        self,
        reactor: Reactor,
        context: MasterContext,
        job: Job,
        previous: PreviousAttempt,
        history: HistoryWriter,
        masker: Masker,
        state: Callable[[], State],
        written: Callable[[bytes, bool], None],
        clients: ClientListener,
    ) -> None:
        # A scheduler may know better than a clock that was set back.
        offset = max(time.time() - reactor.now(), context.clock_offset or -math.inf)
        began = previous.journal.began or reactor.now() + offset
        self.host = context.host or loopback_address()
        self.bind = context.bind or self.host
        info = JobInfo(
            app_id=context.app_id,
            attempt=context.attempt,
            user=job.user,
            queue=job.queue,
            submitted=began if context.submitted is None else context.submitted,
            started=began,
        )
        tasks = sum(role.instances for role in job.roles)
        self.publisher = Publisher(
            reactor, tasks, info, state, history, masker.clean, offset, previous.series
        )
        self.story = Story(masker.clean, written)
        if previous.segments:
            self.story.inherit(list(previous.story))
        proxy = context.proxy
        gate = None if proxy is None else ProxyGate(reactor, job.user, proxy)
        self._log = masker.log
        self.page = Page(reactor, job, self.publisher, self.story, self, clients, gate, masker.log)
        self._executors: Optional[Callable[[str, Message], bool]] = None
        self._add_line: Optional[Callable[[AddStoryLine], None]] = None
        self.streams = StreamTable(
            job.access, self._places, self._send_to_executor, self._tell_story
        )
        self.tunnels = self.page.tunnels = Tunnels(
            reactor,
            unpack_secret(context.secret).secret,
            self.streams,
            gate,
        )
        self.server = WebServer(
            reactor, self.bind, 0, self.page.handle, self._page_failed, self.page.screen,
            self.page.body_limit,
        )  # fmt: skip
        self.url = f"http://{self.address(self.server.port)}/"
        info.links["page"] = self.url if proxy is None else proxy.public_url
        portal = job.history.job_page(info.app_id)
        if portal:
            info.links["portal"] = portal
        for name, url in job.links:
            info.links.setdefault(name, url)

    def open_port(self, handler: Callable[[Exchange], None]) -> int:
        """Listen at one more port with a handler of its own; return the port. Raises OSError."""
        return self.server.open(self.bind, 0, handler)

    def address(self, port: int) -> str:
        """``HOST:PORT`` of this master, as a URL or an executor wants it."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def connect_streams(
        self,
        executors: Callable[[str, Message], bool],
        add_line: Callable[[AddStoryLine], None],
    ) -> None:
        """Let streams of clients reach executors, and the story."""
        self._executors, self._add_line = executors, add_line

    def _send_to_executor(self, container_id: str, message: Message) -> bool:
        return self._executors is not None and self._executors(container_id, message)

    def _tell_story(self, task: str, text: str) -> None:
        if self._add_line is not None:
            self._add_line(AddStoryLine(StoryKind.NOTE, text, Level.INFO, task))

    def _places(self) -> List[TaskPlace]:
        return [
            TaskPlace(item.task, item.container, item.state == "running", item.state)
            for item in self.publisher.view()[0].tasks
        ]

    def _page_failed(self, request: Request, error: Exception) -> None:
        self._log(f"{request.method} {request.target!r:.200}: {type(error).__name__}: {error}")
