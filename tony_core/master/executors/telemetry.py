"""What executors report besides the session machine's events: for the page and the metrics.

Measures, reported values, a TensorBoard that answers, notes for people. An event passes through
here on its way to the machine, and leaves what the page shows of it.
"""

from __future__ import annotations

from typing import Callable, Dict, Mapping, Set, Tuple

from tony_core.history.layout import StoryKind
from tony_core.master.publish import Publisher
from tony_core.master.session.commands import AddStoryLine, Level
from tony_core.master.session.events import ExecutorReported
from tony_core.master.state.journal import Journal
from tony_core.master.streams import StreamTable
from tony_core.master.tracking.port import Tracker
from tony_core.master.web.routes import Page
from tony_core.measures import HEARTBEAT_GAP_S, PROGRESS, SAVED, STEP
from tony_core.protocol.messages import Ended, Noted, Register, Reported, Serving

TENSORBOARD = "tensorboard"


class Telemetry:
    """Takes what executors report: notes what the page shows, passes events on."""

    def __init__(
        self,
        publisher: Publisher,
        page: Page,
        journal: Journal,
        feed: Callable[[ExecutorReported], None],
        add_line: Callable[[AddStoryLine], None],
        disconnected: Callable[[str], None],
        tracker: Tracker,
        streams: StreamTable,
    ) -> None:
        self._publisher = publisher
        self._page = page
        self.address = journal.address
        self._feed = feed
        self._add_line = add_line
        self._disconnected = disconnected
        self._tracker = tracker
        self._streams = streams
        self.stream = streams.from_executor
        self._tasks: Dict[str, Tuple[str, int]] = {}  # container -> task, session
        self._tensorboard = ""  # the container that serves it
        self._noted_once: Set[str] = set()  # keys of notes that are shown once

    def prepared(self, container_id: str, task: str, session: int) -> None:
        """Note which task of which session a container is from now on."""
        self._tasks[container_id] = (task, session)

    def ended(self, container_id: str) -> None:
        if container_id == self._tensorboard:
            self._remove_tensorboard()
        self._streams.container_gone(container_id, "its container has ended")

    def disconnected(self, container_id: str) -> None:
        """Note the end of an executor's connection, which ends what clients have opened there."""
        self._streams.container_gone(container_id, "the connection to its executor was lost")
        self._disconnected(container_id)

    def report(self, event: ExecutorReported) -> None:
        """Note what the page shows of an event, and pass it on."""
        container_id, message = event
        if isinstance(message, Ended):
            task, latest = self._task(container_id)
            if 0 <= message.session <= latest:
                key = (task, message.session, container_id)
                self._publisher.add_exit_code(key, message.exit_code)
        elif isinstance(message, Register) and message.task:
            self._tasks.setdefault(container_id, (message.task, message.session))
        elif isinstance(message, Reported):
            values = dict(message.metrics)
            for name in (PROGRESS, STEP, SAVED):  # the latter of a checkpoint
                if getattr(message, name) is not None:
                    values[name] = float(getattr(message, name))
            self.measured(container_id, message.session, values)
            self._tracker.reported(self._task(container_id)[0], message)
        self._feed(event)

    def measured(self, container_id: str, session: int, values: Mapping[str, float]) -> None:
        task, _ = self._task(container_id)
        if task:
            self._publisher.add_measures(task, values)

    def keep_heartbeat_gap(self, container_id: str, gap_s: float) -> None:
        """Keep the longest time between two messages of a task's executor, as a metric."""
        _, session = self._task(container_id)
        self.measured(container_id, session, {HEARTBEAT_GAP_S: round(gap_s, 3)})

    def serving(self, container_id: str, message: Serving, host: str) -> None:
        """Link TensorBoard while it answers."""
        if message.name != TENSORBOARD:
            return
        if message.port:
            try:
                url = self._page.serve_tensorboard(host, message.port)
            except OSError as error:
                text = f"TensorBoard answers, but the master cannot open a port for it: {error}"
                self._note(container_id, text, Level.WARNING)
                return
            self._tensorboard = container_id
            if self._publisher.info.links.get(TENSORBOARD) != url:
                self._publisher.link(TENSORBOARD, url)
                self._note(container_id, f"TensorBoard answers at {url}", Level.DECISION)
            return
        if container_id == self._tensorboard:
            self._remove_tensorboard()
        if message.message:
            text = f"TensorBoard does not answer: {message.message}"
            self._note(container_id, text, Level.WARNING)

    def noted(self, container_id: str, message: Noted) -> None:
        if message.once:
            if message.once in self._noted_once:
                return
            self._noted_once.add(message.once)
        level = Level.WARNING if message.level == "warning" else Level.INFO
        task, _ = self._task(container_id)
        self._note(container_id, f"{task}: {message.text}", level, kind=StoryKind.NOTE)

    def _remove_tensorboard(self) -> None:
        self._tensorboard = ""
        self._page.remove_tensorboard()
        self._publisher.link(TENSORBOARD, None)

    def _task(self, container_id: str) -> Tuple[str, int]:
        return self._tasks.get(container_id, ("", -1))

    def _note(
        self, container_id: str, text: str, level: Level, kind: StoryKind = StoryKind.SERVING
    ) -> None:
        task, session = self._task(container_id)
        self._add_line(AddStoryLine(kind, text, level, task, session))
