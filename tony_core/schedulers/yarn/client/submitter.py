"""The submission of one job to a cluster: what travels, by which tokens, and its sending.

:class:`PlannedSubmission` gathers what the modules beside it decide: the request
(``submission``), how a next master starts (``next_master``), the tokens (``delegation_tokens``)
and the keytab (``security``). A dry run prints the plan, a submit sends it. A submit imports this
module, and what only secure clusters need where it is used; no other verb does.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from tony_core.files import registry
from tony_core.files.artifact import Artifact
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import ConfigurationError, HadoopError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import NameService
from tony_core.hadoop.tokens import Token
from tony_core.job.spec import Job
from tony_core.schedulers.port import LifetimeLimit, SchedulerError
from tony_core.schedulers.yarn import home, job_credentials, refusals
from tony_core.schedulers.yarn.client import next_master, security, submission
from tony_core.schedulers.yarn.client.carried_runtime import PackedRuntimes
from tony_core.schedulers.yarn.client.next_master import MasterStart
from tony_core.schedulers.yarn.client.resource_manager import ResourceManager
from tony_core.schedulers.yarn.client.submission import AppRequest
from tony_core.schedulers.yarn.job_credentials import MasterCredentials
from tony_core.schedulers.yarn.local_resources import Visibility

UNDO_S = 5.0


class Submitter:
    """Plans the submissions of one client; what it has read of the cluster's files is kept."""

    def __init__(self, conf: SiteConfiguration, identity: ClusterIdentity) -> None:
        self._conf = conf
        self._identity = identity
        self._visibility: Dict[str, Visibility] = {}
        self._runtimes = PackedRuntimes(registry.filesystem)

    def plan(self, job: Job, artifacts: Sequence[Artifact], root: str) -> PlannedSubmission:
        """The submission of a job whose artifacts are, or will be, staged below ``root``."""
        if root not in self._visibility:
            self._visibility[root] = Visibility(root, registry.filesystem)
        visibility, runtimes = self._visibility[root], self._runtimes
        return PlannedSubmission(
            self._conf, self._identity, job, artifacts, root, visibility, runtimes
        )


class PlannedSubmission:
    """One job's submission."""

    def __init__(
        self,
        conf: SiteConfiguration,
        identity: ClusterIdentity,
        job: Job,
        artifacts: Sequence[Artifact],
        root: str,
        visibility: Visibility,
        runtimes: PackedRuntimes,
    ) -> None:
        self._conf = conf
        self._identity = identity
        self._job = job
        self._artifacts = artifacts
        self._root = root
        self._visibility = visibility
        self._runtimes = runtimes
        self.lifetime_limit: Optional[LifetimeLimit] = None  # known once it is sent

    def describe(self, app_id: str) -> Dict[str, Any]:
        """What would be sent, for a dry run."""
        credentials = submission.describe_credentials(
            app_id, self._root, self._credentials, self._planned_tokens(), self._start
        )
        return self._request(app_id).describe(credentials)

    def warnings(self) -> Tuple[str, ...]:
        """What the user should know before it starts."""
        return tuple(next_master.find_warnings(self._start, self._conf))

    def send(self, app_id: str, connect: Callable[[], ResourceManager], secret: bytes) -> None:
        """Send it, and wait until it is accepted. What may have been sent is killed on failure."""
        rm: Optional[ResourceManager] = None
        try:
            request = self._request(app_id)
            secrets, file = job_credentials.master_secrets(
                secret, self._credentials, self._start.largest_job
            )
            secrets.update(request.secrets())
            if self._start.carries_runtime:
                secrets.update(self._runtimes.secrets(self._artifacts))
            if file is not None:
                request = submission.upload_job_file(request, self._root, file)
            opened = connect()
            home.write_pointer(self._home, self._root, app_id)
            # As late as possible: nothing cancels the tokens of a submit that fails.
            tokens = self.obtain_tokens(opened)
            secrets.update(self._keytab_secrets())
            rm = opened  # from here on it may have been submitted, whatever goes wrong
            rm.submit(request, Credentials(tokens, secrets))
            submission.wait_until_accepted(rm.report, request.app_id)
        except BaseException as error:
            if rm is not None:
                _undo(rm, app_id)
            if isinstance(error, HadoopError):
                raise refusals.translate_error(error, f"submitting {app_id}") from error
            if isinstance(error, OSError):
                raise SchedulerError(f"{self._root} cannot be written: {error}") from error
            raise
        if tokens:
            from tony_core.schedulers.yarn.client.delegation_tokens import find_lifetime_limit

            self.lifetime_limit = find_lifetime_limit(
                self._job, self._identity, tokens.values(), time.time()
            )

    def obtain_tokens(self, rm: ResourceManager) -> Mapping[str, Token]:
        """The tokens for the job's containers, by their names; none on an open cluster."""
        if not self._services:
            return {}
        from tony_core.schedulers.yarn.client.delegation_tokens import job_tokens

        return job_tokens(self._conf, self._identity, rm, self._services)

    # ------------------------------------------------------------------ its parts

    @property
    def _home(self) -> str:
        return home.home_or_root(self._conf, self._identity.user, self._root)

    @cached_property
    def _files(self) -> Mapping[str, str]:
        return self._visibility(self._artifacts)

    @cached_property
    def _credentials(self) -> MasterCredentials:
        return submission.master_credentials(
            self._conf,
            self._identity.user,
            self._root,
            self._job,
            self._artifacts,
            self._visibility,
        )

    @cached_property
    def _start(self) -> MasterStart:
        """What of the master travels in its credentials."""
        if not security.ships_keytab(self._job, self._identity):
            return MasterStart()
        return next_master.plan_start(
            submission.master_files(self._job, self._artifacts, self._files),
            submission.RUNTIME,
            self._runtimes.size(self._artifacts),
            len(self._credentials.encode()),
        )

    def _request(self, app_id: str) -> AppRequest:
        return submission.build_request(
            refusals.parse_id(app_id),
            self._job,
            self._artifacts,
            self._identity.user,
            self._files,
            cancel_tokens=self._identity.tokens is None,  # they are the caller's
            start=self._start,
        )

    @cached_property
    def _services(self) -> Sequence[NameService]:
        """The file systems for which the job needs tokens; none on an open cluster."""
        if not self._identity.is_secure:
            return ()
        from tony_core.schedulers.yarn.client.delegation_tokens import job_name_services

        places = (self._root, self._job.history.location or self._root, self._home)
        try:
            return job_name_services(self._conf, self._job, places, self._artifacts)
        except ConfigurationError as error:
            raise SchedulerError(str(error)) from None

    def _planned_tokens(self) -> List[str]:
        """Tokens and keys in its credentials, for a dry run."""
        if not self._services:
            return []
        from tony_core.schedulers.yarn.client.delegation_tokens import planned_tokens

        login, shipped = self._identity.login, []
        if login is not None and security.ships_keytab(self._job, self._identity):
            shipped = [f"{job_credentials.KEYTAB} (the keys of {login.principal})"]
        try:
            return [*planned_tokens(self._conf, self._services), *shipped]
        except ConfigurationError as error:
            raise SchedulerError(str(error)) from None

    def _keytab_secrets(self) -> Mapping[str, bytes]:
        """The secret of a master that fetches fresh tokens; none for other jobs."""
        login = self._identity.login
        if login is None or not security.ships_keytab(self._job, self._identity):
            return {}
        from tony_core.schedulers.yarn.client.delegation_tokens import service_location

        keys = security.read_shipped_keys(self._job, self._identity)
        places = tuple(map(service_location, self._services))
        shipped = job_credentials.ShippedKeytab(login.principal, keys, places)
        return {job_credentials.KEYTAB: shipped.encode()}


def _undo(rm: ResourceManager, app_id: str) -> None:
    """Kill what may have been submitted; the caller reports the error that led here."""
    try:
        rm.kill(refusals.parse_id(app_id), "its submission failed", within_s=UNDO_S)
    except (SchedulerError, HadoopError):
        pass
