"""TonY's client behind a connection of Airflow.

The hook looks the connection up once, when :attr:`TonyHook.site` is first used. After that it calls
nothing of Airflow's, so that a signal handler can kill a job. It raises the client's own errors
(``JobError``, ``SchedulerError``, ``UsageError``), and ``SiteError`` for a connection that cannot
be used; :func:`tony_airflow.errors.as_airflow` decides which of them a retry may mend.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import (
    Any,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
)
from urllib.parse import unquote, urlsplit

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, mask_secret

from tony_airflow.connection import CONN_TYPE, LOCAL, YARN, Site, site_of
from tony_airflow.errors import message_of
from tony_airflow.links.addresses import application_page, links_of, portal_page
from tony_airflow.logins import SiteError, find_embedded_problem, refuse_own_login
from tony_core.client.advice import advice_lines
from tony_core.client.errors import ClientError
from tony_core.client.kill import Killed, kill
from tony_core.client.logs import Line, read_logs
from tony_core.client.lookup import find_job_history, look_up, only_own, require_view
from tony_core.client.submission import load
from tony_core.client.tails import Tails, read_tails
from tony_core.client.workflow.connections import ClientPool
from tony_core.client.workflow.output import Position, read_output
from tony_core.client.workflow.results import metrics_of
from tony_core.hadoop.errors import HadoopError
from tony_core.history.reader import JobHistory
from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.mask import ENV_PREFIXES, secrets_in, written_forms
from tony_core.job.problems import JobError
from tony_core.job.spec import Job, Setting
from tony_core.schedulers import missing
from tony_core.schedulers.port import (
    AppStatus,
    CheckResult,
    Finding,
    NoSuchApplication,
    Scheduler,
    SchedulerError,
    Submission,
)
from tony_core.schedulers.yarn.refusals import translate_error
from tony_core.view import JobView, TaskView


class NotOwn(SchedulerError):
    """An application that is another user's, where only this user's counts."""

    def __init__(self, status: AppStatus, user: str) -> None:
        super().__init__(f"it is {status.user}'s, and this process acts for {user}")
        self.status = status


class TonyHook(BaseHook):
    """Submits, watches and ends jobs.

    :param tony_conn_id: a connection of the type ``tony``.
    :param scheduler: a scheduler instead of the connection's; ``local``, the embedded one, needs no
        connection.
    :param proxy_user: the user for whom the connection's login acts, instead of the connection's.
    """

    conn_name_attr = "tony_conn_id"
    default_conn_name = "tony_default"
    conn_type = CONN_TYPE
    hook_name = "TonY"

    def __init__(
        self,
        tony_conn_id: str = default_conn_name,
        *,
        scheduler: Optional[str] = None,
        proxy_user: Optional[str] = None,
    ) -> None:
        super().__init__()
        self.tony_conn_id = tony_conn_id
        self.secrets: FrozenSet[str] = frozenset()  # masked in all that it reads of logs
        self._scheduler = scheduler
        self._proxy_user = proxy_user
        self._site: Optional[Site] = None
        self._clients: Optional[ClientPool] = None

    @classmethod
    def of(cls, site: Site) -> TonyHook:
        """A hook for a site; it looks up no connection."""
        hook = cls(site.name or cls.default_conn_name)
        hook._site = site
        return hook

    @property
    def site(self) -> Site:
        """The site where jobs go; SiteError when the connection cannot be used."""
        if self._site is None:
            site = self._find_site().acting_for(self._proxy_user)
            if site.scheduler == LOCAL:
                problem = find_embedded_problem(site.proxy_user, os.environ)
                if problem:
                    raise SiteError(problem)
            self._site = site
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
            site = site._replace(scheduler=self._scheduler)
        return site

    def get_conn(self) -> ClientPool:
        """The connections to the scheduler."""
        if self._clients is None:
            self._clients = ClientPool(self.site.scheduler, self.site.env)
        return self._clients

    # ------------------------------------------------------------------ submitting

    def load(self, arguments: JobArguments) -> Loaded:
        """Read and check a job, with the connection's keys below it; JobError if it is wrong.

        A job file counts only if the arguments name it, never one in a worker's working folder.
        """
        with self.get_conn().client():  # reads a job file on HDFS as this site's user
            return self._load(arguments)

    def check(self, arguments: JobArguments) -> List[str]:
        """Check a job as far as that works without starting it; the warnings."""
        with self.get_conn().client() as client:
            self._check_user(client.scheduler)
            loaded = self._load(arguments)
            prepared = client.prepare(loaded.job)
        return [str(problem) for problem in (*loaded.warnings, *prepared.warnings)]

    def dry_run(self, arguments: JobArguments) -> Submission:
        """Exactly what :meth:`submit` would send; writes nothing."""
        with self.get_conn().client() as client:
            return client.dry_run(self._load(arguments).job)

    def submit(self, arguments: JobArguments) -> str:
        """Start a job, and return its application's id at once."""
        with self.get_conn().client() as client:
            self._check_user(client.scheduler)
            loaded = self._load(arguments)
            started = client.submit(loaded.job, detach=True)
        for problem in (*loaded.warnings, *started.warnings):
            self.log.warning("%s", problem)
        if started.lifetime_limit is not None:
            self.log.info("%s %s", started.app_id, started.lifetime_limit.text)
        return started.app_id

    def _check_user(self, scheduler: Scheduler) -> None:
        """Refuse a connection whose login is a name that a cluster with Kerberos does not take."""
        site, user = self.site, scheduler.real_user or scheduler.user
        if site.scheduler == YARN and site.user and user != site.user:
            raise SiteError(
                f"{site.label} names the login {site.user}, and the cluster asks for Kerberos,"
                f" where this process is {user}: clear the login, or name the principal and keytab"
                " of that user in the connection"
            )

    def _load(self, arguments: JobArguments) -> Loaded:
        site = self.site
        arguments = arguments._replace(
            scheduler=site.scheduler,
            defaults={**site.conf_below(), **arguments.defaults},
            defaults_from=site.label,
        )
        loaded = load(arguments, env=site.env(), finds_job_file=False)
        refuse_own_login(loaded.job)
        _mask(loaded.job.settings)
        return loaded

    # ------------------------------------------------------------------ status

    def list(self) -> List[AppStatus]:
        """All applications that the scheduler knows and this user may look at, the newest first."""
        with self.get_conn().client() as client:
            return client.list()

    def find(self, tag: str) -> List[AppStatus]:
        """All users' applications with a tag, running and ended, the newest first.

        Any user can give a job any tag: :meth:`only_own` leaves this user's.
        """
        wanted = tag.lower()  # as YARN keeps it
        found = [one for one in self.list() if wanted in (known.lower() for known in one.tags)]
        return sorted(found, key=lambda status: status.submitted, reverse=True)

    def user(self) -> str:
        """The user that the scheduler takes this site for; empty where it knows only one."""
        with self.get_conn().client() as client:
            return client.scheduler.user

    def only_own(self, found: List[AppStatus]) -> List[AppStatus]:
        """Those of the applications that are this user's."""
        with self.get_conn().client() as client:
            return only_own(client.scheduler, found)

    def status(self, app_id: str, own: bool = False) -> AppStatus:
        """The scheduler's status of an application; NotOwn for another user's, with ``own``."""
        with self.get_conn().client() as client:
            status = client.scheduler.status(app_id)
            if own and not only_own(client.scheduler, [status]):
                raise NotOwn(status, client.scheduler.user)
        require_view(status)
        return status

    def statuses(self, app_ids: Sequence[str]) -> Dict[str, AppStatus]:
        """The status of each application that the scheduler knows, by one call."""
        wanted = set(app_ids)
        if len(wanted) == 1:
            (only,) = wanted
            try:
                return {only: self.status(only)}
            except NoSuchApplication:
                return {}
        return {status.app_id: status for status in self.list() if status.app_id in wanted}

    def view(self, app_id: str) -> JobView:
        """The job's newest view: from its page while it runs, from history afterwards."""
        with self.get_conn().client() as client:
            return look_up(client.scheduler, app_id, self.site.history_location)

    def tasks(self, app_id: str) -> Tuple[TaskView, ...]:
        """The job's tasks."""
        return self.view(app_id).tasks

    def links(self, app_id: str) -> Dict[str, str]:
        """The addresses of its links, by the names in :mod:`tony_airflow.links.tony`."""
        application, portal = application_page(self.site, app_id), portal_page(self.site, app_id)
        return links_of(self.view(app_id), application, portal=portal)

    def metrics(self, app_id: str) -> Dict[str, float]:
        """The last value of each metric that its program reported."""
        return metrics_of(self.view(app_id))

    def history(self, app_id: str) -> JobHistory:
        """The job's history after its end: the job, its tasks and its events."""
        with self.get_conn().client() as client:
            root = self.site.history_location or client.scheduler.history_root(None)
            if not root:
                raise SchedulerError(f"{self.site.label} keeps no history of its jobs")
            return find_job_history(root, app_id)

    def logs(
        self,
        app_id: str,
        tasks: Optional[Sequence[str]] = None,
        stream: Optional[str] = None,
        tail: Optional[int] = None,
    ) -> Iterator[Line]:
        """The lines of its tasks' logs (``worker``, ``worker:0``), the last ``tail`` of each."""
        with self.get_conn().borrow() as pooled:
            lines = read_logs(
                pooled.scheduler,
                app_id,
                tasks=tuple(tasks or ()),
                stream=stream or "both",
                tail=tail,
                history=self.site.history_location,
            )
            while True:
                with pooled.files:
                    line = next(lines, None)
                if line is None:
                    return
                yield line

    def output(
        self, view: JobView, position: Position, last: bool = False
    ) -> Tuple[List[str], Dict[str, int]]:
        """The chief's output after ``position``, and the new position."""
        with self.get_conn().client() as client:
            reader = client.scheduler.log_reader
            return read_output(reader, view, position, last, self.secrets)

    def tails(self, view: JobView) -> Tails:
        """The last lines of every task, within limits."""
        with self.get_conn().client() as client:
            return read_tails(client.scheduler, view, secrets=self.secrets)

    def advice(self, app_id: str) -> List[str]:
        """What a job that has ended could change, in some ten lines; none where that is unknown."""
        try:
            with self.get_conn().client() as client:
                return advice_lines(
                    client.scheduler,
                    app_id,
                    history=self.site.history_location,
                    debug=self.log.debug,
                )
        except Exception as error:  # of any kind: the job has ended, and its outcome counts
            self.log.debug("no advice on %s: %s", app_id, error)
            return []

    # ------------------------------------------------------------------ ending

    def kill(self, app_id: str, reason: str = "", wait_s: Optional[float] = None) -> Killed:
        """End an application, and wait (``wait_s`` at most) until it has ended.

        It uses a connection of its own, since another call may be waiting for its answer.
        """
        own = self.get_conn().open()
        try:
            more: Dict[str, Any] = {} if wait_s is None else {"wait_s": wait_s}
            with own.files:
                return kill(own.scheduler, app_id, reason or "killed by Airflow", **more)
        finally:
            own.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()

    # ------------------------------------------------------------------ files on HDFS

    def stage(self, local: str, remote: str, overwrite: bool = True) -> str:
        """Copy a local file or folder to HDFS; its path there."""
        with self._hdfs_client() as files:
            files.upload(_hdfs_path(remote), local, overwrite=overwrite)
        return remote

    def check_path(self, remote: str) -> bool:
        """Whether a path exists on HDFS."""
        with self._hdfs_client() as files:
            return files.status(_hdfs_path(remote), strict=False) is not None

    def webhdfs(self, webhdfs_conn_id: Optional[str] = None) -> Any:
        """Airflow's own ``WebHDFSHook`` with this connection's login and user.

        By default it is for the WebHDFS connection that this connection names. It reads and sets
        nothing of the process's environment: another hook may have another login at the same time.
        """
        from tony_airflow.hooks.webhdfs import webhdfs_hook

        with _translated("the login for WebHDFS"):
            return webhdfs_hook(webhdfs_conn_id or self._webhdfs_conn_id(), self.site)

    def _webhdfs_conn_id(self) -> str:
        if self.site.webhdfs_conn_id:
            return self.site.webhdfs_conn_id
        raise SiteError(
            f"{self.site.label} names no WebHDFS connection (webhdfs_conn_id), so nothing can be"
            " looked for or staged on HDFS"
        )

    @contextmanager
    def _hdfs_client(self) -> Iterator[Any]:
        """The hdfscli client of Airflow's WebHDFSHook; its connections are closed at the end.

        It is for what a DAG does on HDFS around a job. The job's own files are staged by TonY's
        client, to the file system of the job's scheduler.
        """
        hook = self.webhdfs()
        client = None
        try:
            with _translated("WebHDFS"):
                client = hook.get_conn()
                yield client
        finally:
            session = getattr(client, "_session", None)
            if session is not None:
                session.close()

    # ------------------------------------------------------------------ the connection's test

    def test_connection(self) -> Tuple[bool, str]:
        """The result that the *Test* button of the connection's form shows."""
        passed, text = self._test()
        if is_temporary(self.tony_conn_id):
            text = text.replace(f"the connection {self.tony_conn_id}", "this connection")
        return passed, text

    def _test(self) -> Tuple[bool, str]:
        try:
            findings = list(self.examine())
        except (SchedulerError, ClientError, JobError) as error:
            return False, message_of(error)
        wrong = [one for one in findings if one.verdict is CheckResult.WRONG]
        if wrong:
            return False, "; ".join(_text_of(one) for one in wrong)
        seen = [f"{one.what}: {one.detail}" for one in findings if one.verdict is CheckResult.OK]
        return True, "; ".join(seen) or f"the scheduler {self.site.scheduler} can be used"

    def examine(self) -> Iterator[Finding]:
        """The findings of ``tony doctor --no-probe``; starts and writes nothing."""
        job = self._empty_job()
        with self.get_conn().client() as client:
            self._check_user(client.scheduler)
            yield from client.scheduler.examine(job, None)

    def _empty_job(self) -> Job:
        site = self.site
        arguments = JobArguments(
            scheduler=site.scheduler, defaults=site.conf_below(), defaults_from=site.label
        )
        return load_job(arguments, env=site.env(), program=(), needs_command=False).job


def is_temporary(conn_id: str) -> bool:
    """Whether Airflow made this connection for one test.

    Airflow keeps the form's values in an environment variable then, under eight random letters and
    digits, which mean nothing to a reader.
    """
    is_random = re.fullmatch("[A-Za-z0-9]{8}", conn_id) and conn_id != conn_id.lower()
    return bool(is_random) and f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ


def _text_of(finding: Finding) -> str:
    advice = f" ({finding.advice})" if finding.advice else ""
    return f"{finding.what}: {finding.detail}{advice}"


def _mask(settings: Iterable[Setting]) -> None:
    """Give a job's secrets to Airflow's own masker, before anything is logged.

    Those are the values that TonY calls secret, and the variables that Airflow calls so.
    """
    for item in settings:
        for secret in secrets_in(item.key, item.value):
            for text in (secret, *written_forms(secret)):
                mask_secret(text)
        if item.key.startswith(ENV_PREFIXES) and item.value:
            mask_secret({item.key.rpartition(".")[2]: item.value})


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except HadoopError as error:
        raise translate_error(error, what) from None


def _hdfs_path(location: str) -> str:
    """The path that WebHDFS takes, of a path or an ``hdfs://`` location."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme else location
