"""TonY's client behind a connection of Airflow.

The connection is looked up once, when the hook's :attr:`TonyHook.site` is first asked for; nothing
after that speaks to Airflow, so a kill may come in a signal handler. What goes wrong is raised as
the client raises it (``JobError``, ``SchedulerError``, ``UsageError``), a connection that cannot be
used as ``SiteError``: :func:`tony_airflow.errors.as_airflow` says what a retry may mend.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from tony_airflow.connection import CONN_TYPE, LOCAL, Site, SiteError, site_of
from tony_airflow.errors import words
from tony_airflow.hooks.clients import Clients
from tony_airflow.hooks.hdfs import files_of, path_of
from tony_airflow.hooks.masking import mask
from tony_airflow.links.addresses import application_page, links_of
from tony_airflow.output import CHIEFS, Position, read_output
from tony_core.client.attach import look_up
from tony_core.client.errors import ClientError
from tony_core.client.history import find_job
from tony_core.client.kill import Killed, kill
from tony_core.client.loading import load
from tony_core.client.logs import Line, read_logs
from tony_core.client.tails import Tails, read_tails
from tony_core.client.view import JobView, TaskView
from tony_core.history.reader import JobHistory
from tony_core.job.load import JobArguments, Loaded
from tony_core.job.problems import JobError
from tony_core.schedulers import missing
from tony_core.schedulers.port import (
    AppStatus,
    Finding,
    NoSuchApplication,
    SchedulerError,
    Submission,
    Verdict,
)


class TonyHook(BaseHook):
    """Submits, watches and ends jobs.

    :param tony_conn_id: a connection of the type ``tony``.
    :param scheduler: the scheduler instead of the connection's; ``local``, the embedded one, needs
        no connection at all.
    """

    conn_name_attr = "tony_conn_id"
    default_conn_name = "tony_default"
    conn_type = CONN_TYPE
    hook_name = "TonY"

    def __init__(
        self, tony_conn_id: str = default_conn_name, *, scheduler: Optional[str] = None
    ) -> None:
        super().__init__()
        self.tony_conn_id = tony_conn_id
        self.secrets: FrozenSet[str] = frozenset()  # not to be seen in what it reads of logs
        self._scheduler = scheduler
        self._site: Optional[Site] = None
        self._clients: Optional[Clients] = None

    @classmethod
    def of(cls, site: Site) -> TonyHook:
        """A hook that looks up no connection, ever."""
        hook = cls(site.name or cls.default_conn_name)
        hook._site = site
        return hook

    @property
    def site(self) -> Site:
        """Where jobs go; SiteError when the connection cannot be used."""
        if self._site is None:
            self._site = self._find_site()
        return self._site

    def _find_site(self) -> Site:
        if self._scheduler == LOCAL and self.tony_conn_id == self.default_conn_name:
            return Site()
        nowhere = missing(self._scheduler) if self._scheduler is not None else ""
        if nowhere:
            raise SiteError(nowhere)
        try:
            connection = self.get_connection(self.tony_conn_id)
        except AirflowNotFoundException:
            raise SiteError(
                f"there is no connection {self.tony_conn_id}: create one of the type {CONN_TYPE}"
                " (Admin > Connections), or choose scheduler='local', which needs none"
            ) from None
        site = site_of(connection)
        if self._scheduler is not None:
            site = replace(site, scheduler=self._scheduler)
        return site

    def get_conn(self) -> Clients:
        """The connections to the scheduler."""
        if self._clients is None:
            self._clients = Clients(self.site)
        return self._clients

    # ------------------------------------------------------------------ submitting

    def load(self, arguments: JobArguments) -> Loaded:
        """The checked job, under what the connection says for all jobs; JobError if it is wrong.

        Only the job file that is named counts: what lies in a worker's folder is nobody's.
        """
        with self.get_conn().one():  # a job file on HDFS is read as this site's user
            return self._load(arguments)

    def check(self, arguments: JobArguments) -> List[str]:
        """Refuse all that can be refused before anything starts; what is worth a line."""
        with self.get_conn().one() as client:
            loaded = self._load(arguments)
            prepared = client.prepare(loaded.job)
        return [str(problem) for problem in (*loaded.warnings, *prepared.warnings)]

    def dry_run(self, arguments: JobArguments) -> Submission:
        """Exactly what :meth:`submit` would send; nothing is written."""
        with self.get_conn().one() as client:
            return client.dry_run(self._load(arguments).job)

    def submit(self, arguments: JobArguments) -> str:
        """Start a job, detached; its application's id."""
        with self.get_conn().one() as client:
            loaded = self._load(arguments)
            started = client.submit(loaded.job, detach=True)
        for problem in (*loaded.warnings, *started.warnings):
            self.log.warning("%s", problem)
        return started.app_id

    def _load(self, arguments: JobArguments) -> Loaded:
        site = self.site
        arguments = replace(
            arguments,
            scheduler=site.scheduler,
            defaults={**site.conf_below(), **arguments.defaults},
            defaults_from=site.words,
        )
        loaded = load(arguments, env=site.env(), finds_job_file=False)
        mask(loaded.job.settings)
        return loaded

    # ------------------------------------------------------------------ how it stands

    def list(self) -> List[AppStatus]:
        """Every application that the scheduler knows, the newest first."""
        with self.get_conn().one() as client:
            return client.list()

    def find(self, tag: str) -> List[AppStatus]:
        """Those with a tag, running and ended, the newest first."""
        wanted = tag.lower()  # as YARN keeps it
        found = [one for one in self.list() if wanted in (known.lower() for known in one.tags)]
        return sorted(found, key=lambda status: status.submitted, reverse=True)

    def status(self, app_id: str) -> AppStatus:
        """The scheduler's word on it."""
        with self.get_conn().one() as client:
            return client.scheduler.status(app_id)

    def statuses(self, app_ids: Sequence[str]) -> Dict[str, AppStatus]:
        """The scheduler's word on many, by one call; those that it does not know are left out."""
        wanted = set(app_ids)
        if len(wanted) == 1:
            (only,) = wanted
            try:
                return {only: self.status(only)}
            except NoSuchApplication:
                return {}
        return {status.app_id: status for status in self.list() if status.app_id in wanted}

    def view(self, app_id: str) -> JobView:
        """All that is known now: of its page while it runs, of history afterwards."""
        with self.get_conn().one() as client:
            return look_up(client.scheduler, app_id, self.site.history_location)

    def tasks(self, app_id: str) -> Tuple[TaskView, ...]:
        """Its tasks."""
        return self.view(app_id).tasks

    def links(self, app_id: str) -> Dict[str, str]:
        """Where its buttons lead, by the names of :mod:`tony_airflow.links.tony`."""
        return links_of(self.view(app_id), application_page(self.site, app_id))

    def metrics(self, app_id: str) -> Dict[str, float]:
        """What its program reported, by name the last value."""
        return metrics_of(self.view(app_id))

    def history(self, app_id: str) -> JobHistory:
        """What is kept of it after its end: the job, its tasks and the story."""
        with self.get_conn().one() as client:
            root = self.site.history_location or client.scheduler.history_root(None)
            if not root:
                raise SchedulerError(f"{self.site.words} keeps no history of its jobs")
            return find_job(root, app_id)

    def logs(
        self,
        app_id: str,
        tasks: Optional[Sequence[str]] = None,
        stream: Optional[str] = None,
        tail: Optional[int] = None,
    ) -> Iterator[Line]:
        """The lines of its tasks' logs (``worker``, ``worker:0``), the last ``tail`` of each."""
        with self.get_conn().taken() as opened:
            lines = read_logs(
                opened.scheduler,
                app_id,
                tasks=tuple(tasks or ()),
                stream=stream or "both",
                tail=tail,
                history=self.site.history_location,
            )
            while True:
                with opened.files:
                    line = next(lines, None)
                if line is None:
                    return
                yield line

    def output(
        self, view: JobView, position: Position, last: bool = False
    ) -> Tuple[List[str], Dict[str, int]]:
        """What the chief has written since, and the position to go on from."""
        with self.get_conn().one() as client:
            return read_output(client.scheduler, view, position, last, self.secrets)

    def tails(self, view: JobView) -> Tails:
        """The last lines of every task, in bounds."""
        with self.get_conn().one() as client:
            return read_tails(client.scheduler, view, secrets=self.secrets)

    # ------------------------------------------------------------------ ending

    def kill(self, app_id: str, reason: str = "", wait_s: Optional[float] = None) -> Killed:
        """End it and wait until it has ended (``wait_s`` at most); silence when it has already.

        On a connection of its own: it may be called while another call waits for its answer.
        """
        own = self.get_conn().open()
        try:
            more: Dict[str, Any] = {} if wait_s is None else {"wait_s": wait_s}
            with own.files:
                return kill(own.scheduler, app_id, reason or "killed by Airflow", **more)
        finally:
            own.close()

    def close(self) -> None:
        """Give back the connections; a later call opens new ones."""
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()

    # ------------------------------------------------------------------ files on HDFS

    def stage(self, local: str, remote: str, overwrite: bool = True) -> str:
        """Put a file or folder of this machine on HDFS; where it is now."""
        with files_of(self._webhdfs_conn_id()) as files:
            files.upload(path_of(remote), local, overwrite=overwrite)
        return remote

    def check_path(self, remote: str) -> bool:
        """Whether a path is there on HDFS."""
        with files_of(self._webhdfs_conn_id()) as files:
            return files.status(path_of(remote), strict=False) is not None

    def _webhdfs_conn_id(self) -> str:
        if self.site.webhdfs_conn_id:
            return self.site.webhdfs_conn_id
        raise SiteError(
            f"{self.site.words} names no WebHDFS connection (webhdfs_conn_id), so nothing can be"
            " looked for or staged on HDFS"
        )

    # ------------------------------------------------------------------ the connection's test

    def test_connection(self) -> Tuple[bool, str]:
        """What the *Test* button of the connection's form says."""
        passed, said = self._test()
        if is_passing(self.tony_conn_id):
            said = said.replace(f"the connection {self.tony_conn_id}", "this connection")
        return passed, said

    def _test(self) -> Tuple[bool, str]:
        try:
            findings = list(self.examine())
        except (SchedulerError, ClientError, SiteError, JobError) as error:
            return False, words(error)
        wrong = [one for one in findings if one.verdict is Verdict.WRONG]
        if wrong:
            return False, "; ".join(_told(one) for one in wrong)
        seen = [f"{one.what}: {one.said}" for one in findings if one.verdict is Verdict.OK]
        return True, "; ".join(seen) or f"the scheduler {self.site.scheduler} can be used"

    def examine(self) -> Iterator[Finding]:
        """What ``tony doctor --no-probe`` finds: nothing is started or written."""
        job = self._nothing()
        with self.get_conn().one() as client:
            yield from client.scheduler.examine(job, None)

    def _nothing(self) -> Any:
        from tony_core.job.load import load_job

        site = self.site
        arguments = JobArguments(
            scheduler=site.scheduler, defaults=site.conf_below(), defaults_from=site.words
        )
        return load_job(arguments, env=site.env(), program=(), needs_command=False).job


def is_passing(conn_id: str) -> bool:
    """Whether a connection lives for one test: Airflow keeps what the form holds in a variable of
    its environment, under eight letters and digits by chance, which say nothing to a person."""
    by_chance = re.fullmatch("[A-Za-z0-9]{8}", conn_id) and conn_id != conn_id.lower()
    return bool(by_chance) and f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ


def _told(finding: Finding) -> str:
    advice = f" ({finding.advice})" if finding.advice else ""
    return f"{finding.what}: {finding.said}{advice}"


def metrics_of(view: JobView) -> Dict[str, float]:
    """What a job's program reported, by name the last value; the chief's where several do."""
    found: Dict[str, float] = {}
    for task in sorted(view.tasks, key=lambda task: task.task in CHIEFS):
        found.update(task.reported)
    return found


__all__ = ["TonyHook", "links_of", "metrics_of"]
