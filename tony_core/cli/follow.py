"""Watches a job from the command line, until it ends or the user leaves.

A signal ends the job that this command submitted, and the wait for that has a deadline; a
second one leaves at once, and the programs lose their grace. A job that was only attached to
keeps running.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Callable, Optional

from tony_core.cli.interrupts import KILLED_BY, SIGNAL_NAMES, Interrupts
from tony_core.cli.output import on_terminal
from tony_core.cli.presenters import GuardedPresenter, JsonPresenter, PlainPresenter, Presenter
from tony_core.client.errors import ClientError
from tony_core.client.exit_codes import exit_code_of_state
from tony_core.client.kill import ALLOWANCE_S, GRACE_S, Killing
from tony_core.client.watch import Watch
from tony_core.exit_causes import exit_code_of
from tony_core.job.spec import Job
from tony_core.schedulers.port import NoSuchApplication, Scheduler, SchedulerError
from tony_core.view import JobView


class Forgotten(ClientError):
    """The scheduler does not know the job any more, and so not how it ended."""


class Follow:
    """Watches a job with signals and a presenter."""

    def __init__(
        self,
        scheduler: Scheduler,
        app_id: str,
        presenter: Presenter,
        interrupts: Interrupts,
        *,
        job: Optional[Job] = None,
        history: Optional[str] = None,
        kills: Optional[Callable[[], Scheduler]] = None,
    ) -> None:
        self._presenter = presenter
        self._interrupts = interrupts
        self._kills = kills  # opens a scheduler to kill by; None: the job keeps running
        self._killing: Optional[Killing] = None
        self._give_up: Optional[float] = None
        grace = job.timeouts.kill_grace_s if job is not None else GRACE_S
        self._wait_s = grace + ALLOWANCE_S
        self._app_id = app_id
        self._scheduler = scheduler
        callbacks = presenter.callbacks()
        self._presenter_tick = callbacks.on_tick
        callbacks = callbacks._replace(on_tick=self._tick, on_refused_page=self._note_refused_page)
        self._watch = Watch(scheduler, app_id, callbacks, job=job, history=history)

    def run(self) -> int:
        """Watch until the end; return the exit code."""
        self._interrupts.defer(self._watch.wake)
        try:
            view = self._watched()
            if view is not None:
                code = self._code(view)
                self._presenter.finished(view, code)
                return code
        finally:
            self._presenter.close()
        return self._left()

    def _watched(self) -> Optional[JobView]:
        try:
            return self._watch.run()
        except NoSuchApplication as error:
            if self._watch.view is None:
                raise  # it never existed
            raise Forgotten(
                f"the scheduler does not know {self._app_id} any more: a scheduler that restarts"
                " without its stored state forgets its applications and ends them. To see how"
                f" the job ended: tony history show {self._app_id}"
            ) from error

    def _code(self, view: JobView) -> int:
        if self._killing is not None and self._interrupts.first is not None:
            return exit_code_of(self._interrupts.first)
        return exit_code_of_state(view.state)

    def _tick(self) -> None:
        received = self._interrupts.received
        if received:
            self._interrupted(len(received))
        if self._presenter_tick is not None:
            self._presenter_tick()

    def _note_refused_page(self, why: str) -> None:
        self._presenter.show_note(
            f"tasks and story cannot be shown now, for the job's page cannot be read: {why}"
        )

    def _interrupted(self, times: int) -> None:
        if self._kills is None or times > 1:
            if self._kills is not None:
                self._kill()
            self._watch.stop()
            return
        if self._killing is None:
            self._kill()
            word = self._signal_name()
            self._presenter.show_note(
                f"{word}: stopping; programs have {self._wait_s - ALLOWANCE_S:g} s to exit."
                " Ctrl-C again: kill now and return"
            )
            self._give_up = time.monotonic() + self._wait_s
        elif self._killing.problem is not None or (
            self._give_up is not None and time.monotonic() >= self._give_up
        ):
            self._watch.stop()

    def _kill(self) -> None:
        if self._killing is None and self._kills is not None:
            self._killing = Killing(self._kills, self._app_id, KILLED_BY[self._number()])

    def _number(self) -> signal.Signals:
        return signal.Signals(self._interrupts.first or signal.SIGINT)

    def _signal_name(self) -> str:
        return SIGNAL_NAMES[self._number()]

    def _left(self) -> int:
        """The exit code after the user left before the end."""
        first = self._interrupts.first or int(signal.SIGINT)
        if self._kills is None:
            self._presenter.show_note(
                f"the job is still running. Resume with: tony attach {self._app_id}; end it with:"
                f" tony kill {self._app_id}"
            )
            return exit_code_of(first)
        assert self._killing is not None
        if self._killing.problem is not None:
            raise SchedulerError(
                f"{self._app_id} could not be killed: {self._killing.problem}. Try again with:"
                f" tony kill {self._app_id}"
            )
        kill_in_background(self._scheduler.name, self._app_id)
        self._presenter.show_note(
            f"returned while {self._app_id} is ending. To see whether it has ended:"
            f" tony status {self._app_id}"
        )
        return exit_code_of(first)


def kill_in_background(scheduler: str, app_id: str) -> None:
    """Ask a second time to kill the job, by a process of its own that outlives this one.

    A master that is asked twice gives its programs no more grace; one that does not end is killed.
    """
    subprocess.Popen(
        [sys.executable, "-m", "tony_core.cli.main", "kill", "--scheduler", scheduler, app_id],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def presenter_for(as_json: bool, scheduler: Scheduler) -> Presenter:
    """The presenter that suits where our output goes."""
    if as_json:
        return GuardedPresenter(JsonPresenter())
    if on_terminal(sys.stdout):
        from tony_core.cli.live import LivePresenter

        return GuardedPresenter(LivePresenter(pages_last=scheduler.log_reader.urls_outlive_job))
    return GuardedPresenter(PlainPresenter(scheduler.log_reader.urls_outlive_job))
