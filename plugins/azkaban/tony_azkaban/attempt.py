"""The application of one attempt at a job, from its submission to its end."""

from __future__ import annotations

import os
import sys
import time
from typing import List, Mapping, Optional

from tony_azkaban import outputs
from tony_azkaban.cancelling import Cancelling
from tony_azkaban.execution import Execution
from tony_azkaban.log import Log, lines_wanted
from tony_azkaban.site import Site
from tony_azkaban.translation import in_properties
from tony_core.cli.interrupts import Interrupts
from tony_core.client.ended_jobs import history_root
from tony_core.client.exit_codes import ExitCode, of_state
from tony_core.client.submission import prepare, send
from tony_core.client.tails import Tails, read_tails
from tony_core.client.view import JobView
from tony_core.client.watch import Watch
from tony_core.dataclass import replace
from tony_core.job.mask import job_secrets
from tony_core.job.spec import Job
from tony_core.schedulers import open_scheduler
from tony_core.schedulers.port import Scheduler, SchedulerError

OUTPUTS = "JOB_OUTPUT_PROP_FILE"


class Attempt:
    """See the module."""

    def __init__(
        self,
        props: Mapping[str, str],
        site: Site,
        execution: Execution,
        job: Job,
        interrupts: Interrupts,
    ) -> None:
        self._props = props
        self._site = site
        self._execution = execution
        self._job = job
        self._interrupts = interrupts
        self._said_cancelled = False

    def run(self, notes: List[str]) -> int:
        """Submit or take over, watch, tell; the exit code."""
        scheduler = open_scheduler(self._job.scheduler)
        try:
            log = Log(scheduler.log_reader.urls_outlive_job)
            taken = self._predecessor(scheduler, log)
            if taken is None:
                return self._submit(scheduler, log, notes)
            return self._watch(scheduler, log, taken.app_id, notes, taken)
        finally:
            scheduler.close()

    def _predecessor(self, scheduler: Scheduler, log: Log) -> Optional[Cancelling]:
        """Of an application that is there already and becomes this attempt's."""
        from tony_azkaban import predecessors

        if not predecessors.may_exist(self._execution, self._props):
            return None
        taken: List[Cancelling] = []

        def takes(app_id: str) -> None:
            taken.append(self._cancelling(app_id))
            self._interrupts.defer(taken[0].ask)

        predecessors.settle(scheduler, self._execution, self._props, log.say, takes)
        return taken[0] if taken else None

    def _submit(self, scheduler: Scheduler, log: Log, notes: List[str]) -> int:
        prepared = prepare(scheduler, self._job)
        cancelling = self._cancelling(prepared.app_id)
        try:
            send(scheduler, prepared, lambda: self._interrupts.defer(cancelling.ask))
        except Exception:
            if not cancelling.asked:
                raise
            # What it ran into is that the application was ended under its hands.
            text = f"KILLED: {prepared.app_id} was cancelled while it was being submitted"
            return self._cancelled(log, cancelling, text)
        notes = [*notes, *(str(in_properties(each)) for each in prepared.warnings)]
        return self._watch(scheduler, log, prepared.app_id, notes, cancelling)

    def _cancelling(self, app_id: str) -> Cancelling:
        name = self._job.scheduler
        return Cancelling(lambda: open_scheduler(name), name, app_id, self._site.cancel_s)

    # ------------------------------------------------------------------ to the end

    def _watch(
        self,
        scheduler: Scheduler,
        log: Log,
        app_id: str,
        notes: List[str],
        cancelling: Cancelling,
    ) -> int:
        def tick() -> None:
            self._tell_cancelled(log, app_id, cancelling)
            if told.on_tick is not None:
                told.on_tick()

        told = log.callbacks()
        watch = Watch(scheduler, app_id, replace(told, on_tick=tick), job=self._job)
        cancelling.wakes(watch.wake)
        log.started(app_id, dict(self._job.links))
        for note in notes:
            log.say(f"warning: {note}")
        self._tell_cancelled(log, app_id, cancelling)
        try:
            view = watch.run()
        except Exception as error:
            if not cancelling.asked:
                lease = self._job.timeouts.client_lease_s
                ends = f" and ends within {lease:g} s" if lease else "; it goes on"
                sys.stderr.write(f"tony: {app_id} is no longer watched{ends}\n")
                raise
            return self._cancelled(log, cancelling, str(error))
        assert view is not None, "nothing stops this watch"
        return self._ended(scheduler, log, view, cancelling)

    def _ended(self, scheduler: Scheduler, log: Log, view: JobView, cancelling: Cancelling) -> int:
        code = of_state(view.state)
        if cancelling.asked:
            code = int(ExitCode.TERMINATED)
            if not cancelling.tells():
                _await_exit()
        root = history_root(scheduler, self._job)
        history = f"{root.rstrip('/')}/{view.app_id}" if root else ""
        path = os.environ.get(OUTPUTS)
        if path:
            named = outputs.named_in_flow(os.getcwd(), self._execution.execid)
            said = outputs.outputs(view, self._job, self._execution.job, history, log.links, named)
            try:
                outputs.write(path, said)
            except OSError as error:
                log.say(f"warning: {path} could not be written: {error.strerror}")
        tails, page = Tails(), ""
        if not cancelling.asked:  # else the server's patience is over soon
            secrets = job_secrets(self._job)
            tails = read_tails(scheduler, view, secrets, lines=lines_wanted(self._props))
            page = _page_of(scheduler, view.app_id)
        log.finished(view, code, history, tails, page)
        return code

    # ------------------------------------------------------------------ cancelled

    def _tell_cancelled(self, log: Log, app_id: str, cancelling: Cancelling) -> None:
        if cancelling.asked and not self._said_cancelled:
            self._said_cancelled = True
            log.say(f"SIGTERM: the job is cancelled; {app_id} is being ended")

    def _cancelled(self, log: Log, cancelling: Cancelling, why: str) -> int:
        # Whoever ends it does so by threads of this process: they are waited for.
        cancelling.over.wait()  # or they end this process, when their time is over
        if not cancelling.tells():
            _await_exit()
        log.say(why)
        return int(ExitCode.TERMINATED)


def _page_of(scheduler: Scheduler, app_id: str) -> str:
    """What the cluster itself shows of an application, also when it has ended."""
    try:
        return scheduler.status(app_id).tracking_url or ""
    except SchedulerError:
        return ""


def _await_exit() -> None:
    """Another thread says the last words and ends the process."""
    while True:
        time.sleep(1.0)
