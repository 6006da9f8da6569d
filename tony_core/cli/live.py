"""The live view on a terminal: the story scrolls above, the job's state stands below.

The watcher ticks several times a second, on the one thread there is; each tick redraws. In a
job of many tasks only those that need attention are rows of their own.
"""

from __future__ import annotations

import sys
import time
from typing import List, Mapping, Optional, Tuple

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from tony_core.cli import outcome
from tony_core.cli.output import STATE_COLOURS, duration, line, pairs, percent, safe
from tony_core.cli.presenters import Presenter, event_lines, worth_showing
from tony_core.client.watch import Callbacks, Event
from tony_core.schedulers.port import LifetimeLimit
from tony_core.view import JobView, TaskView

BAR = 30
LEAST_ROWS = 4
OTHER_LINES = 8  # of the screen, besides tasks
WEIGHT_STYLES = {"warning": "yellow", "error": "red", "decision": "bold"}
#: Those that a person should see first.
_ATTENTION = {"failed": 0, "lost": 0, "killed": 1, "running": 2}


def plain(text: str, style: str = "") -> Text:
    """Text that neither drives the terminal nor is read as markup."""
    return Text("\n".join(safe(part) for part in text.split("\n")), style)


class LivePresenter(Presenter):
    def __init__(self, console: Optional[Console] = None, pages_last: bool = True) -> None:
        self._pages_last = pages_last
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._live: Optional[Live] = None
        self._view: Optional[JobView] = None
        self._app_id = ""
        self._begun = time.monotonic()
        self._message = ""
        self._width = 0  # of the terminal when the picture was drawn
        self._drawn: List[int] = []  # the picture's lines, how wide each was

    def callbacks(self) -> Callbacks:
        return Callbacks(
            on_event=self._event,
            on_view=self._on_view,
            on_tick=self._draw,
            on_unreachable=lambda why: self.show_note(f"the scheduler does not answer: {why}"),
        )

    def started(self, app_id: str, limit: Optional[LifetimeLimit] = None) -> None:
        self._app_id = app_id
        self._print(plain(f"application {app_id}", "bold"))
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def show_note(self, text: str) -> None:
        self._print(plain(text, "yellow"))
        self._message = text

    def finished(self, view: JobView, exit_code: int) -> None:
        self.close()
        for text in outcome.lines(view, exit_code, pages_last=self._pages_last):
            line(text)
        sys.stdout.flush()

    def close(self) -> None:
        self._fit()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    # ------------------------------------------------------------------ callbacks

    def _event(self, event: Event) -> None:
        if not worth_showing(event, self._view):
            return
        at = event.get("time")
        clock = time.localtime(at if isinstance(at, (int, float)) else None)
        text = Text(time.strftime("%H:%M:%S ", clock), "dim")
        words = "\n         ".join(event_lines(event))
        text.append(words, WEIGHT_STYLES.get(str(event.get("weight")), ""))
        self._print(text)

    def _on_view(self, view: JobView) -> None:
        self._view = view
        self._draw()

    def _print(self, text: Text) -> None:
        self._fit()
        self._console.print(text, soft_wrap=True)

    def _draw(self) -> None:
        if self._live is None:
            return
        self._fit()
        picture, width = self.render(), self._console.size.width
        self._live.update(picture, refresh=True)
        lines = self._console.render_lines(picture, pad=False)[: self._console.size.height]
        self._width, self._drawn = width, [Segment.get_line_length(line) for line in lines]

    def _fit(self) -> None:
        """A terminal that became narrower has wrapped the picture's lines: go up by the rows
        that came of it, which Live does not know of when it erases the rest."""
        width = self._console.size.width
        if self._live is None or width >= self._width:
            return
        self._width = width
        rows = sum(max(0, (length - 1) // width) for length in self._drawn)
        up = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * rows
        if up:
            erase = ((ControlType.ERASE_IN_LINE, 2),)
            self._console.control(Control(ControlType.CARRIAGE_RETURN, *erase, *up))

    # ------------------------------------------------------------------ the picture

    def render(self) -> RenderableType:
        """The picture below the story."""
        view = self._view
        if view is None:
            return Text("submitted; waiting for the scheduler's first answer", "dim")
        parts: List[RenderableType] = [Text(""), self._head(view)]
        if view.sizes:
            parts.append(plain(view.sizes, "dim"))
        if view.waiting:
            parts.append(plain(f"waiting: {view.waiting}", "yellow"))
        if view.trouble:
            parts.append(plain(f"trouble: {view.trouble}", "yellow"))
        if view.tasks:
            parts.append(self._tasks(view.tasks))
        parts.extend(self._links(view.links))
        if self._message:
            parts.append(plain(self._message, "yellow"))
        return Group(*parts)

    def _head(self, view: JobView) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        name = plain(view.name or self._app_id, "bold")
        state = Text(view.state.value, STATE_COLOURS.get(view.state.value, ""))
        cells: List[RenderableType] = [name, state]
        if view.progress:
            cells += [
                ProgressBar(total=1.0, completed=view.progress, width=BAR),
                Text(percent(view.progress)),
            ]
        if view.session > 0:
            cells.append(Text(f"session {view.session}"))
        took = view.duration_s(time.time())
        took = time.monotonic() - self._begun if took is None else took
        cells.append(Text(duration(took), "dim"))
        head.add_row(*cells)
        return head

    def _tasks(self, tasks: Tuple[TaskView, ...]) -> RenderableType:
        room = max(LEAST_ROWS, self._console.size.height - OTHER_LINES)
        shown = tasks if len(tasks) <= room else self._most_important(tasks, room - 1)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("task", "state", "node", "exit", "metrics"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for task in shown:
            metrics = pairs(task.reported) or pairs(dict(task.measures or task.usage), 2)
            part = f"{percent(task.progress)} " if task.progress is not None else ""
            code = "" if task.exit_code is None else str(task.exit_code)
            table.add_row(
                plain(task.task),
                plain(task.state, STATE_COLOURS.get(task.state, "")),
                plain(task.node),
                Text(code, "red" if task.exit_code else ""),
                plain(part + metrics),
            )
        if len(shown) < len(tasks):
            rest: dict[str, int] = {}
            for task in tasks[:]:
                rest[task.state] = rest.get(task.state, 0) + 1
            counts = ", ".join(f"{count} {state}" for state, count in rest.items())
            return Group(table, plain(f"of {len(tasks)} tasks: {counts}", "dim"))
        return table

    @staticmethod
    def _most_important(tasks: Tuple[TaskView, ...], room: int) -> Tuple[TaskView, ...]:
        ranked = sorted(range(len(tasks)), key=lambda i: (_ATTENTION.get(tasks[i].state, 3), i))
        return tuple(tasks[i] for i in sorted(ranked[:room]))

    @staticmethod
    def _links(links: Mapping[str, str]) -> List[RenderableType]:
        return [Text(safe(f"{name}: {url}"), overflow="fold") for name, url in links.items()]
