"""The application of one attempt at a job, from its submission to its end."""

from __future__ import annotations

import os
import sys
import time
from typing import List, Mapping, Optional

from tony_azkaban import outputs, predecessors
from tony_azkaban.cancellation import Cancellation
from tony_azkaban.execution import Execution
from tony_azkaban.folder import named_in_flow
from tony_azkaban.job_properties import translate_problem
from tony_azkaban.log import Log, lines_wanted
from tony_azkaban.site import Site
from tony_core.cli.interrupts import Interrupts
from tony_core.client.advice import advice_lines
from tony_core.client.cluster_login import open_for_job
from tony_core.client.exit_codes import ExitCode, exit_code_of_state
from tony_core.client.lookup import history_root
from tony_core.client.portal_pages import with_portal
from tony_core.client.submission import prepare, send
from tony_core.client.tails import Tails, read_tails
from tony_core.client.watch import Watch
from tony_core.job.mask import job_secrets
from tony_core.job.spec import Job
from tony_core.schedulers.port import Scheduler, SchedulerError
from tony_core.view import JobView

OUTPUTS = "JOB_OUTPUT_PROP_FILE"


class Attempt:
    """Submits an application, or continues an earlier attempt's, and watches it to its end."""

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
        self._is_cancel_logged = False

    def run(self, notes: List[str]) -> int:
        """Run the application; the exit code. ``notes`` are warnings for the log."""
        scheduler = open_for_job(self._job)
        try:
            log = Log(scheduler.log_reader.urls_outlive_job)
            cancellation = self._find_predecessor(scheduler, log)
            if cancellation is None:
                return self._submit(scheduler, log, notes)
            return self._watch(scheduler, log, notes, cancellation)
        finally:
            scheduler.close()

    def _find_predecessor(self, scheduler: Scheduler, log: Log) -> Optional[Cancellation]:
        """Find an application to continue; the object that cancels it."""
        if not predecessors.may_exist(self._execution, self._props):
            return None
        found: List[Cancellation] = []

        def on_attach(app_id: str) -> None:
            found.append(self._cancellation(app_id))
            self._interrupts.defer(found[0].request)

        predecessors.settle(scheduler, self._execution, self._props, log.write, on_attach)
        return found[0] if found else None

    def _submit(self, scheduler: Scheduler, log: Log, notes: List[str]) -> int:
        prepared = prepare(scheduler, self._job)
        cancellation = self._cancellation(prepared.app_id)
        try:
            send(scheduler, prepared, lambda: self._interrupts.defer(cancellation.request))
        except Exception:
            if not cancellation.is_requested:
                raise
            # It failed because the application was ended meanwhile.
            text = f"KILLED: {prepared.app_id} was cancelled while it was being submitted"
            return self._exit_cancelled(log, cancellation, text)
        notes = [*notes, *(str(translate_problem(each)) for each in prepared.warnings)]
        limit = scheduler.lifetime_limit(prepared.app_id)
        if limit is not None:
            log.write(f"{prepared.app_id} {limit.text}")
        return self._watch(scheduler, log, notes, cancellation)

    def _cancellation(self, app_id: str) -> Cancellation:
        job = self._job
        return Cancellation(lambda: open_for_job(job), job.scheduler, app_id, self._site.cancel_s)

    # ------------------------------------------------------------------ to the end

    def _watch(
        self, scheduler: Scheduler, log: Log, notes: List[str], cancellation: Cancellation
    ) -> int:
        app_id = cancellation.app_id
        callbacks = log.callbacks()

        def tick() -> None:
            self._log_cancel(log, cancellation)
            if callbacks.on_tick is not None:
                callbacks.on_tick()

        watch = Watch(scheduler, app_id, callbacks._replace(on_tick=tick), job=self._job)
        cancellation.on_progress(watch.wake)
        log.started(app_id, dict(self._job.links))
        for note in notes:
            log.write(f"warning: {note}")
        self._log_cancel(log, cancellation)
        try:
            view = watch.run()
        except Exception as error:
            if not cancellation.is_requested:
                lease = self._job.timeouts.client_lease_s
                ends = f" and ends within {lease:g} s" if lease else "; it goes on"
                sys.stderr.write(f"tony: {app_id} is no longer watched{ends}\n")
                raise
            return self._exit_cancelled(log, cancellation, str(error))
        assert view is not None, "nothing stops this watch"
        return self._exit(scheduler, log, view, cancellation)

    def _exit(
        self, scheduler: Scheduler, log: Log, view: JobView, cancellation: Cancellation
    ) -> int:
        """Write the outputs and the end of the log; the exit code."""
        code = exit_code_of_state(view.state)
        if cancellation.is_requested:
            code = int(ExitCode.TERMINATED)
            if not cancellation.claim_report():
                _wait_for_exit()
        view = with_portal(view, self._job.history)
        root = history_root(scheduler, self._job)
        history = f"{root.rstrip('/')}/{view.app_id}" if root else ""
        path = os.environ.get(OUTPUTS)
        if path:
            named = named_in_flow(os.getcwd(), self._execution.execid)
            given = outputs.outputs(view, self._job, self._execution.job, history, log.links, named)
            try:
                outputs.write(path, given)
            except OSError as error:
                log.write(f"warning: {path} could not be written: {error.strerror}")
        tails, page, advice = Tails(), "", []
        if not cancellation.is_requested:  # else the server soon sends SIGKILL
            secrets = job_secrets(self._job)
            tails = read_tails(scheduler, view, secrets, lines=lines_wanted(self._props))
            page = _tracking_url(scheduler, view.app_id)
            advice = advice_lines(scheduler, view.app_id, job=self._job)
        log.finished(view, code, history, tails, page, advice)
        return code

    # ------------------------------------------------------------------ cancelled

    def _log_cancel(self, log: Log, cancellation: Cancellation) -> None:
        if cancellation.is_requested and not self._is_cancel_logged:
            self._is_cancel_logged = True
            log.write(f"SIGTERM: the job is cancelled; {cancellation.app_id} is being ended")

    def _exit_cancelled(self, log: Log, cancellation: Cancellation, why: str) -> int:
        """Wait for the threads of this process that end the application; the exit code."""
        cancellation.ended.wait()  # or they end this process, when their time is over
        if not cancellation.claim_report():
            _wait_for_exit()
        log.write(why)
        return int(ExitCode.TERMINATED)


def _tracking_url(scheduler: Scheduler, app_id: str) -> str:
    """The cluster's own page of an application, which stays after its end."""
    try:
        return scheduler.status(app_id).tracking_url or ""
    except SchedulerError:
        return ""


def _wait_for_exit() -> None:
    """Wait while another thread writes the last line and ends the process."""
    while True:
        time.sleep(1.0)
