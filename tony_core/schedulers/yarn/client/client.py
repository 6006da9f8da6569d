"""The client's side of YARN: a few calls to the ResourceManager, and files on HDFS.

Nothing is kept between calls but connections: what an application is, YARN knows. So every
method works from any process on any machine that has the site's configuration
(HADOOP_CONF_DIR), for every application of ours (by its type TONY, or its tag).

An id is asked for with the facts that a check needs, so that a submit costs few calls: the
cluster's facts, the application, and its report until it is accepted. Who only looks loads
nothing that a submit alone needs.
"""

from __future__ import annotations

import os
from functools import partial
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)
from urllib.parse import urlsplit

from tony_core.dataclass import dataclass, field
from tony_core.files import registry
from tony_core.files.artifact import Artifact
from tony_core.files.location import is_remote, scheme_of
from tony_core.files.port import FileSystem
from tony_core.hadoop.errors import ConfigurationError, HadoopError
from tony_core.hadoop.rpc.wire import User
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name
from tony_core.hadoop.yarn.records import NewApplication
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Job
from tony_core.schedulers import port
from tony_core.schedulers.port import (
    AppStatus,
    LastingRefusal,
    SchedulerError,
    Submission,
)
from tony_core.schedulers.yarn.client import connectivity, refusals, status
from tony_core.schedulers.yarn.client.logs import YarnLogReader

if TYPE_CHECKING:
    from tony_core.schedulers.yarn.client.cluster_limits import ClusterFacts
    from tony_core.schedulers.yarn.client.doctor import Stage
    from tony_core.schedulers.yarn.client.localfiles import Visibility
    from tony_core.schedulers.yarn.client.rest import RestClient
    from tony_core.schedulers.yarn.client.submission import AppRequest
    from tony_core.schedulers.yarn.job_credentials import MasterParcel

UNDO_S = 5.0
FAILOVER_TRIES = 10  # some 15 s
SCHEMES = ("hdfs", "webhdfs", "swebhdfs")


class YarnScheduler(port.Scheduler):
    """See the module."""

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
            endpoints.refuse_kerberos(self._conf)
        except ConfigurationError as error:
            raise LastingRefusal(str(error)) from None
        self.user = self._user = user_name(self._env)
        self._rpc: Optional[RmClient] = None
        self._rest: Optional[RestClient] = None
        self._logs: Optional[YarnLogReader] = None
        self._new: Optional[NewApplication] = None  # an id that nobody has used yet
        self._facts: Dict[int, Tuple[Job, ClusterFacts]] = {}
        self._visibility: Dict[str, Visibility] = {}
        files = _Files(self._user, tuple(sorted(self._conf.to_json().items())), self._conf)
        for scheme in SCHEMES:
            registry.register(scheme, files)

    # ------------------------------------------------------------------ submitting

    def staging_root(self, job: Optional[Job] = None) -> str:
        if job is not None and job.yarn.staging_dir:
            root = job.yarn.staging_dir.rstrip("/")
            if is_remote(root) and scheme_of(root) != "viewfs":
                return root
            path = urlsplit(root).path if is_remote(root) else root
            return self._on_hdfs("/" + path.lstrip("/"))
        return self._home()

    def new_app_id(self, job: Job) -> str:
        new, self._new = self._new, None
        if new is None:
            try:
                new = self._rm(job.hadoop.rm_retries).new_application()
            except HadoopError as error:
                raise refusals.told(error, "an application's id") from None
        return str(new.id)

    def check(self, job: Job) -> List[str]:
        from tony_core.schedulers.yarn.client import checks

        found = checks.problems(job, self._gather(job))
        try:
            self.staging_root(job)
        except SchedulerError as error:
            found.append(str(error))
        return found

    def warnings(self, job: Job) -> List[str]:
        from tony_core.schedulers.yarn.client import checks

        return checks.warnings(job, self._gather(job))

    def dry_run(self, app_id: str, job: Job, artifacts: Sequence[Artifact]) -> Submission:
        from tony_core.schedulers.yarn.client import submit

        root = self.staging_root(job)
        return Submission(
            scheduler=self.name,
            job=job,
            artifacts=tuple(artifacts),
            details=self._request(app_id, job, artifacts).shown(
                submit.named(app_id, root, self._parcel(job, artifacts, root))
            ),
        )

    def submit(self, app_id: str, submission: Submission, secret: bytes) -> None:
        from tony_core.hadoop.credentials import Credentials
        from tony_core.schedulers.yarn import job_credentials
        from tony_core.schedulers.yarn.client import killing, submit

        job, artifacts = submission.job, submission.artifacts
        root = self.staging_root(job)
        request = self._request(app_id, job, artifacts)
        secrets, file = job_credentials.for_master(secret, self._parcel(job, artifacts, root))
        sent = False
        try:
            secrets.update(request.secrets())
            if file is not None:
                request = submit.with_file(request, root, file)
            rm = self._rm(job.hadoop.rm_retries)
            killing.say_where(self._usual(root), root, app_id)
            sent = True  # from here on nobody knows, until it is answered
            if isinstance(rm, RmClient):
                rm.submit(request.message(Credentials(secrets=secrets)))
            else:
                rm.submit(request, secrets)
            submit.wait_accepted(rm.report, request.app_id)
        except BaseException as error:
            if sent:
                self._undo(app_id)
            if isinstance(error, HadoopError):
                raise refusals.told(error, f"submitting {app_id}") from error
            if isinstance(error, OSError):
                raise SchedulerError(f"{root} cannot be written: {error}") from error
            raise

    def _request(self, app_id: str, job: Job, artifacts: Sequence[Artifact]) -> AppRequest:
        from tony_core.schedulers.yarn.client import submission

        visible = self._visible(self.staging_root(job))(artifacts)
        return submission.build(refusals.parse_id(app_id), job, artifacts, self._user, visible)

    def _parcel(self, job: Job, artifacts: Sequence[Artifact], root: str) -> MasterParcel:
        from tony_core.schedulers.yarn.client import submit

        visible = self._visible(root)
        return submit.parcel_of(self._conf, self._user, root, job, artifacts, visible)

    def _visible(self, root: str) -> Visibility:
        if root not in self._visibility:
            from tony_core.schedulers.yarn.client.localfiles import Visibility

            self._visibility[root] = Visibility(root, registry.filesystem)
        return self._visibility[root]

    def _undo(self, app_id: str) -> None:
        """Whatever was begun: the error that led here is the one to tell."""
        try:
            self._rm().kill(refusals.parse_id(app_id), "its submission failed", within_s=UNDO_S)
        except (SchedulerError, HadoopError):
            pass

    # ------------------------------------------------------------------ how it stands

    def status(self, app_id: str) -> AppStatus:
        application = refusals.parse_id(app_id)
        try:
            return status.status_of(self._rm().report(application))
        except HadoopError as error:
            raise refusals.told(error, app_id) from error

    def list(self) -> List[AppStatus]:
        try:
            rm = self._rm()
            ours = {one.id: one for one in rm.applications(types=[status.TYPE])}
            ours.update((one.id, one) for one in rm.applications(tags=[status.TAG]))
        except HadoopError as error:
            raise refusals.told(error, "the list of applications") from error
        return [status.status_of(ours[known]) for known in sorted(ours, reverse=True)]

    def kill(self, app_id: str, reason: str) -> None:
        from tony_core.schedulers.yarn.client import killing

        application = refusals.parse_id(app_id)
        try:
            rm = self._rm()
            report = rm.report(application)
            state = status.state_of(report)
            if not state.ended:
                folder = self._left(report.user, app_id)
                runs = state is port.AppState.RUNNING
                killing.end(rm, application, reason, self._user, runs, folder)
        except HadoopError as error:
            raise refusals.told(error, f"killing {app_id}") from error

    def _left(self, owner: str, app_id: str) -> Optional[str]:
        """Where a master of ours keeps its state; None for somebody else's application."""
        try:
            return f"{self._home()}/apps/{app_id}" if owner == self._user else None
        except SchedulerError:
            return None  # no HDFS: its reason stands nowhere

    # ------------------------------------------------------------------ for other readers

    @property
    def log_reader(self) -> YarnLogReader:
        if self._logs is None:
            self._logs = YarnLogReader(self._conf, self._user, self._rm, self.status)
        return self._logs

    @property
    def cleaner(self) -> YarnCleaner:
        return YarnCleaner(self._user, self._remove_job_folder)

    def _remove_job_folder(self, app_id: str, job: Optional[Job]) -> None:
        """Remove what an application staged for itself, and the note where that is."""
        from tony_core.bundle import jobfolder

        try:
            root = self.staging_root(job)
            jobfolder.remove(root, app_id)
            if root != self._usual(root):
                jobfolder.remove(self._home(), app_id)  # it said where the other is
        except (SchedulerError, OSError, ValueError):
            pass  # tony gc takes it, some day

    def examine(self, job: Job, stage: Optional[Stage] = None) -> Iterator[port.Finding]:
        from tony_core.schedulers.yarn.client.doctor import Cluster, examine

        root = partial(self.staging_root, job)
        cluster = Cluster(self._conf, self._user, self._rm, self._gather, root)
        return examine(cluster, job, stage)

    def close(self) -> None:
        for one in (self._rpc, self._rest):
            if one is not None:
                one.close()
        self._rpc = self._rest = None
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    # ------------------------------------------------------------------ the cluster

    def _rm(self, retries: int = 0) -> Union[RmClient, RestClient]:
        """The ResourceManager: by RPC, and where that port is closed to us by its web server."""
        if self._rpc is not None:
            return self._rpc
        if self._rest is not None:
            return self._rest
        rpc, web = endpoints.rm_client(self._conf), endpoints.rm_web(self._conf)
        pair = len(rpc.addresses) > 1
        # Between the two of a pair nobody may listen for some seconds.
        why = connectivity.why_not(rpc, FAILOVER_TRIES if pair else 1)
        by_web = bool(why) and not connectivity.why_not(web)
        if why and not by_web and not pair and retries > 1:
            why = connectivity.why_not(rpc, retries)
        if not why:
            self._rpc = RmClient.open(self._conf, user=User(self._user))
            return self._rpc
        if not by_web:
            raise SchedulerError(why)
        from tony_core.schedulers.yarn.client.rest import RestClient

        self._rest = RestClient(web, self._user, why)
        return self._rest

    def _gather(self, job: Job) -> ClusterFacts:
        """What the cluster says, asked once for a job."""
        from tony_core.schedulers.yarn.client.cluster_limits import gather

        held = self._facts.get(id(job))
        if held is not None and held[0] is job:
            return held[1]
        try:
            rm = self._rm(job.hadoop.rm_retries)
            if isinstance(rm, RmClient):
                facts = gather(rm, self._conf, job, self._user)
            else:
                facts = rm.facts()
        except HadoopError as error:
            raise refusals.told(error, "asking the cluster") from error
        self._new = facts.application
        self._facts = {id(job): (job, facts)}
        return facts

    def _home(self) -> str:
        return self._on_hdfs(f"/user/{self._user}/.tony")

    def _usual(self, root: str) -> str:
        """The home, where the site has one on HDFS; else a job's own root."""
        try:
            return self._home()
        except SchedulerError:
            return root

    def _on_hdfs(self, path: str) -> str:
        try:
            return endpoints.on_hdfs(self._conf, path)
        except ConfigurationError as error:
            raise LastingRefusal(f"jobs for YARN are staged on HDFS: {error}") from None


@dataclass(frozen=True)
class _Files:
    """Opens HDFS for one user of one site. A second client of both shares what is open."""

    user: str
    says: Tuple[Tuple[str, str], ...]
    conf: SiteConfiguration = field(compare=False)

    def __call__(self) -> FileSystem:
        from tony_core.files.hdfs import WebHdfsFileSystem

        return WebHdfsFileSystem(self.conf, self.user)


class YarnCleaner(port.Cleaner):
    """Removes job folders. What else applications leave on HDFS, the staging's collector does."""

    def __init__(self, user: str, remove_job_folder: Callable[[str, Optional[Job]], None]) -> None:
        self._user = user
        self._remove_job_folder = remove_job_folder

    def remove_leftovers(self, status: AppStatus, job: Optional[Job] = None) -> bool:
        if status.user != self._user or not status.state.ended:
            return False
        self._remove_job_folder(status.app_id, job)
        return True
