"""The scheduler YARN for the client: calls to the ResourceManager, and files on HDFS.

Only connections are kept between calls, since YARN keeps the applications. So every method works
from any process on any machine with the site's configuration (HADOOP_CONF_DIR), for every
application of TonY's (by its type TONY, or its tag).

A submit needs few calls: the cluster's limits, which come with an application id, then the
submission, and reports until it is accepted. A status, a list or a kill imports nothing that
only a submit needs: that is what the imports inside functions are for.
"""

from __future__ import annotations

import os
from functools import cached_property, partial
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from tony_core.files import registry
from tony_core.files.artifact import Artifact
from tony_core.files.location import is_remote, scheme_of
from tony_core.files.port import FileSystem
from tony_core.hadoop.errors import (
    ConfigurationError,
    HadoopError,
    NoTicket,
    ProtectionRefused,
    Unreachable,
)
from tony_core.hadoop.identity import ClusterIdentity, cluster_identity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.certificates import read_authorities
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.records import NewApplication
from tony_core.job.spec import Job
from tony_core.schedulers import port
from tony_core.schedulers.port import (
    AppStatus,
    LastingRefusal,
    LifetimeLimit,
    NotLoggedIn,
    SchedulerError,
    Submission,
)
from tony_core.schedulers.yarn import home, refusals
from tony_core.schedulers.yarn.application_state import RUNNING, TAG, TYPE, state_of
from tony_core.schedulers.yarn.client.cleaner import YarnCleaner
from tony_core.schedulers.yarn.client.log_reader import YarnLogReader
from tony_core.schedulers.yarn.client.resource_manager import ResourceManager, connect
from tony_core.schedulers.yarn.client.status import status_of

if TYPE_CHECKING:
    from tony_core.hadoop.web import WebAccess
    from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits
    from tony_core.schedulers.yarn.client.doctor import Stage
    from tony_core.schedulers.yarn.client.submitter import Submitter

SCHEMES = ("hdfs", "webhdfs", "swebhdfs")


class YarnScheduler(port.Scheduler):
    """Submits, reports and kills applications of YARN; reads their logs."""

    name = "yarn"

    def __init__(self, env: Optional[Mapping[str, str]] = None) -> None:
        self._env = dict(os.environ if env is None else env)
        try:
            self._conf = SiteConfiguration.load(self._env)
            if not self._conf.files:
                raise ConfigurationError(
                    "this machine has no configuration of a Hadoop cluster."
                    f" {self._conf.where()}. Set HADOOP_CONF_DIR to the cluster's configuration"
                )
            read_authorities(self._conf)
            self._identity = cluster_identity(self._conf, self._env)
        except Unreachable as error:
            raise SchedulerError(str(error)) from None
        except NoTicket as error:
            raise NotLoggedIn(str(error), has_expired=error.has_expired) from None
        except HadoopError as error:
            raise LastingRefusal(str(error)) from None
        self.user, self.real_user = self._identity.user, self._identity.real_user
        login = self._identity.login
        self.login_files = login.files if login is not None else ()
        self._rm: Optional[ResourceManager] = None
        self._rm_is_encrypted = False  # whatever the site's configuration allows
        self._logs: Optional[YarnLogReader] = None
        self._web: Optional[WebAccess] = None
        self._new: Optional[NewApplication] = None  # an id that is not used yet
        self._limits: Dict[int, Tuple[Job, ClusterLimits]] = {}
        self._lifetime_limits: Dict[str, LifetimeLimit] = {}  # by application
        for scheme in SCHEMES:
            registry.register(scheme, _Files(self._conf, self._identity))

    # ------------------------------------------------------------------ submitting

    def staging_root(self, job: Optional[Job] = None) -> str:
        if job is not None and job.yarn.staging_dir:
            root = job.yarn.staging_dir.rstrip("/")
            if is_remote(root) and scheme_of(root) != "viewfs":
                return self._with_token(root)
            path = urlsplit(root).path if is_remote(root) else root
            return self._on_hdfs("/" + path.lstrip("/"))
        return self._home()

    def new_app_id(self, job: Job) -> str:
        new, self._new = self._new, None
        if new is None:
            try:
                new = self._connect_for(job).new_application()
            except HadoopError as error:
                raise refusals.translate_error(error, "a new application id") from None
        return str(new.id)

    def check(self, job: Job) -> List[str]:
        from tony_core.schedulers.yarn.client import checks, name_nodes
        from tony_core.schedulers.yarn.client.security import find_security_problems

        found = find_security_problems(job, self._identity)
        if found:
            return found
        found = checks.find_problems(job, self._read_limits(job))
        if self._identity.is_secure:
            found += name_nodes.find_name_node_problems(self._conf, self._identity, job)
        try:
            self.staging_root(job)
        except SchedulerError as error:
            found.append(str(error))
        return found

    def warnings(self, job: Job) -> List[str]:
        from tony_core.schedulers.yarn.client import checks
        from tony_core.schedulers.yarn.client.security import find_security_warnings

        found = checks.find_warnings(job, self._read_limits(job))
        return [*find_security_warnings(job, self._identity), *found]

    def dry_run(self, app_id: str, job: Job, artifacts: Sequence[Artifact]) -> Submission:
        from tony_core.schedulers.yarn.client.submission import admit_real_user

        job = admit_real_user(job, self._identity)
        artifacts = tuple(one._replace(uri=self._with_token(one.uri)) for one in artifacts)
        plan = self._submitter.plan(job, artifacts, self.staging_root(job))
        return Submission(self.name, job, artifacts, plan.describe(app_id), plan.warnings())

    def submit(self, app_id: str, submission: Submission, secret: bytes) -> None:
        job = submission.job
        plan = self._submitter.plan(job, submission.artifacts, self.staging_root(job))
        plan.send(app_id, partial(self._connect_for, job), secret)
        if plan.lifetime_limit is not None:
            self._lifetime_limits[app_id] = plan.lifetime_limit

    def lifetime_limit(self, app_id: str) -> Optional[LifetimeLimit]:
        return self._lifetime_limits.get(app_id)

    @cached_property
    def _submitter(self) -> Submitter:
        from tony_core.schedulers.yarn.client.submitter import Submitter

        return Submitter(self._conf, self._identity)

    # ------------------------------------------------------------------ status and kill

    def status(self, app_id: str) -> AppStatus:
        application = refusals.parse_id(app_id)
        try:
            return status_of(self._connect().report(application), self.user)
        except HadoopError as error:
            raise refusals.translate_error(error, app_id) from error

    def list(self) -> List[AppStatus]:
        try:
            rm = self._connect()
            ours = {one.id: one for one in rm.applications(types=[TYPE])}
            ours.update((one.id, one) for one in rm.applications(tags=[TAG]))
        except HadoopError as error:
            raise refusals.translate_error(error, "the list of applications") from error
        found = [status_of(ours[known], self.user) for known in sorted(ours, reverse=True)]
        return [status for status in found if not status.view_refusal]

    def list_running(self) -> List[AppStatus]:
        try:
            rm = self._connect()
            ours = {one.id: one for one in rm.applications(types=[TYPE], states=RUNNING)}
            ours.update((one.id, one) for one in rm.applications(tags=[TAG], states=RUNNING))
        except HadoopError as error:
            raise refusals.translate_error(error, "the list of applications") from error
        found = [status_of(ours[known], self.user) for known in sorted(ours, reverse=True)]
        return [status for status in found if not status.state.ended]

    def application_url(self, app_id: str) -> str:
        try:
            refusals.parse_id(app_id)
            urls = endpoints.rm_web(self._conf).urls
        except (SchedulerError, HadoopError):
            return ""
        return f"{urls[0]}/cluster/app/{app_id}" if urls else ""

    def page_problem(self, status: AppStatus, url: str) -> str:
        """Only a web server of the site's configuration is asked, and it for this job's page."""
        from tony_core.hadoop.web import is_one_of

        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            inside = parts.path.startswith(f"/proxy/{status.app_id}/") and ".." not in parts.path
            servers = endpoints.web_servers(self._conf)
            if inside and "%" not in parts.path and is_one_of(parts.hostname or "", port, servers):
                return ""
        except (ValueError, HadoopError):
            pass
        return f"{url} is not the page of {status.app_id} behind a web proxy of the cluster"

    def kill(self, app_id: str, reason: str) -> None:
        from tony_core.schedulers.yarn.client.kill import kill_application

        application = refusals.parse_id(app_id)
        try:
            rm = self._connect()
            report = rm.report(application)
            state = state_of(report)
            if not state.ended:
                folder = self._state_folder(report.user, app_id)
                running = state is port.AppState.RUNNING
                kill_application(rm, application, reason, self.user, running, folder)
        except HadoopError as error:
            raise refusals.translate_error(error, f"killing {app_id}") from error

    def owner_folder(self, app_id: str) -> str:
        application = refusals.parse_id(app_id)
        try:
            owner = self._connect().report(application).user
            folder = self._state_folder(owner, app_id)
            if folder is None:
                raise port.SchedulerError(
                    f"{app_id} is {owner}'s: only {owner} may enter its containers (you are"
                    f" {self.user})"
                )
            try:
                return home.follow_pointer(folder)[0]
            except FileNotFoundError:
                return folder  # its master has written nothing yet
        except HadoopError as error:
            raise refusals.translate_error(error, f"looking for the key of {app_id}") from error
        except OSError as error:
            raise port.SchedulerError(f"the key of {app_id} cannot be read: {error}") from error

    def _state_folder(self, owner: str, app_id: str) -> Optional[str]:
        """Where the user's own application keeps its state; None for another user's."""
        try:
            return f"{self._home()}/apps/{app_id}" if owner == self.user else None
        except SchedulerError:
            return None  # without HDFS, the reason is kept nowhere

    # ------------------------------------------------------------------ logs and leftovers

    @property
    def log_reader(self) -> YarnLogReader:
        if self._logs is None:
            self._logs = YarnLogReader(self._conf, self._identity, self._connect, self.status)
        return self._logs

    @property
    def cleaner(self) -> YarnCleaner:
        return YarnCleaner(self.user, self._remove_job_folder)

    def _remove_job_folder(self, app_id: str, job: Optional[Job]) -> None:
        """Remove what an application staged for itself, and the pointer to it."""
        from tony_core.bundle import jobfolder

        try:
            root = self.staging_root(job)
            jobfolder.remove(root, app_id)
            if root != home.home_or_root(self._conf, self.user, root):
                jobfolder.remove(self._home(), app_id)  # the pointer
        except (SchedulerError, OSError, ValueError):
            pass  # a later tony gc removes it

    def examine(self, job: Job, stage: Optional[Stage] = None) -> Iterator[port.Finding]:
        from tony_core.schedulers.yarn.client.doctor import Cluster, examine

        root = partial(self.staging_root, job)
        cluster = Cluster(
            self._conf,
            self.user,
            self._connect,
            self._read_limits,
            root,
            lambda: self.web,
            lambda rm, artifacts: self._submitter.plan(job, artifacts, root()).obtain_tokens(rm),
            self._identity,
        )
        return examine(cluster, job, stage)

    def close(self) -> None:
        if self._rm is not None:
            self._rm.close()
            self._rm = None
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    # ------------------------------------------------------------------ the cluster

    @property
    def web(self) -> WebAccess:
        if self._web is None:
            self._web = self._identity.for_web(self._conf)
        return self._web

    def _connect(self, retries: int = 0, encrypted: bool = False) -> ResourceManager:
        if self._rm is not None and encrypted and not self._rm_is_encrypted:
            self._rm.close()
            self._rm = None
        if self._rm is None:
            self._rm = connect(self._conf, self._identity, retries, encrypted)
            self._rm_is_encrypted = encrypted
        return self._rm

    def _connect_for(self, job: Job) -> ResourceManager:
        """The connection for a job's submit: a keytab must not travel in clear."""
        from tony_core.schedulers.yarn.client.security import ships_keytab

        return self._connect(job.hadoop.rm_retries, ships_keytab(job, self._identity))

    def _read_limits(self, job: Job) -> ClusterLimits:
        """The cluster's limits, read once for a job."""
        kept = self._limits.get(id(job))
        if kept is not None and kept[0] is job:
            return kept[1]
        try:
            limits = self._connect_for(job).read_limits(job)
        except ProtectionRefused as error:
            raise LastingRefusal(
                f"{error}. The job ships a keytab (tony.kerberos.ship-keytab), which must travel"
                " encrypted: have an administrator allow privacy (a list authentication,privacy is"
                " enough), or leave the key out"
            ) from None
        except HadoopError as error:
            raise refusals.translate_error(error, "asking the cluster") from error
        self._new = limits.application
        self._limits = {id(job): (job, limits)}
        return limits

    def _with_token(self, location: str) -> str:
        """A location as nodes have a token for it: on a secure cluster by the NameNode's name."""
        secure = self._identity.is_secure
        return endpoints.hdfs_location(self._conf, location) if secure else location

    def _home(self) -> str:
        return self._on_hdfs(f"/user/{self.user}/.tony")

    def _on_hdfs(self, path: str) -> str:
        try:
            return endpoints.on_hdfs(self._conf, path)
        except ConfigurationError as error:
            raise LastingRefusal(f"jobs for YARN are staged on HDFS: {error}") from None


class _Files:
    """Opens HDFS for one user and site; equal ones share their connections (see the registry)."""

    def __init__(self, conf: SiteConfiguration, identity: ClusterIdentity) -> None:
        self._conf = conf
        self._identity = identity
        self._site = (identity, conf.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Files) and other._site == self._site

    def __call__(self) -> FileSystem:
        from tony_core.files.hdfs import WebHdfsFileSystem

        return WebHdfsFileSystem(self._conf, self._identity)
