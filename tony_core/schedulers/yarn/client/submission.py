"""The submission of a job as an application of YARN: its request and credentials.

:func:`build_request` decides everything; the request is then data. :meth:`AppRequest.describe`
prints it (with the secrets' names only), :meth:`AppRequest.message` makes the RPC message, and
``rest`` the JSON.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.files import registry
from tony_core.files.artifact import Artifact, Use, find
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.launch import APPLICATION, Launch, LocalFile
from tony_core.hadoop.yarn.messages.client_calls import (
    ApplicationSubmissionContext,
    ApplicationTimeoutMap,
)
from tony_core.hadoop.yarn.messages.resource_requests import ResourceRequest
from tony_core.hadoop.yarn.messages.yarn import LogAggregationContext, Priority
from tony_core.hadoop.yarn.records import AppReport, Capability
from tony_core.job.access_list import AccessList
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job
from tony_core.job.xmlfile import job_to_xml
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn import job_credentials, launch_script, refusals
from tony_core.schedulers.yarn.application_state import TAG, TYPE
from tony_core.schedulers.yarn.client import carried_runtime
from tony_core.schedulers.yarn.client.next_master import MasterStart
from tony_core.schedulers.yarn.job_credentials import MasterCredentials
from tony_core.schedulers.yarn.local_resources import (
    Visibility,
    local_files,
    select_master_artifacts,
    split_links,
)
from tony_core.schedulers.yarn.node import start
from tony_core.schedulers.yarn.resources import to_capability

RUNTIME = "tony-runtime"
"""TonY's own code: the name of its folder in every container."""

VALIDITY_S = 600.0
"""YARN forgets a master's failure after that long: a job of weeks may lose several."""

LIFETIME_MARGIN_S = 60.0
"""The master ends a job at its timeout, with a reason; YARN only kills it, this much later."""

EVERY_LOG = (
    "org.apache.hadoop.yarn.server.nodemanager.containermanager.logaggregation."
    "AllContainerLogAggregationPolicy"
)
"""Aggregate the logs of all containers, whatever the site's default."""

_MASTER = ("master", "--scheduler", "yarn")
_LIFETIME = 1
_ANYWHERE = "*"


class AppRequest(NamedTuple):
    """An application to be submitted."""

    app_id: ApplicationId
    name: str
    user: str
    queue: str
    type: str
    tags: Tuple[str, ...]
    priority: Optional[int]
    max_attempts: int
    node_label: str
    lifetime_s: Optional[int]
    view_acl: str
    modify_acl: str
    resources: Capability  # of the master
    master_label: str
    command: str
    environment: Mapping[str, str]
    files: Mapping[str, LocalFile]
    links: Mapping[str, str]  # further names of these files
    cancel_tokens: bool  # when the application has ended
    roles: Mapping[str, Mapping[str, Any]]  # what the master will ask for, to be printed

    def with_file(self, name: str, file: LocalFile) -> AppRequest:
        """A copy with another file for the master's container."""
        return self._replace(files={**self.files, name: file})

    def secrets(self) -> Dict[str, bytes]:
        """Secrets for the master's container beside the job's own."""
        return {start.ALIAS: start.pack({}, (), self.links)} if self.links else {}

    def launch(self, credentials: Credentials) -> Launch:
        """The launch of the master's container."""
        return Launch(
            command=(self.command,),
            environment=self.environment,
            files=self.files,
            credentials=credentials,
            view_acl=self.view_acl,
            modify_acl=self.modify_acl,
        )

    def to_message(self, credentials: Credentials) -> ApplicationSubmissionContext:
        """The request as a message of RPC."""
        request = ResourceRequest(
            priority=Priority(priority=0),
            resource_name=_ANYWHERE,
            capability=self.resources.to_message(),
            num_containers=1,
            relax_locality=True,
        )
        if self.master_label:
            request = request.replace(node_label_expression=self.master_label)
        context = ApplicationSubmissionContext(
            application_id=self.app_id.to_message(),
            application_name=self.name,
            queue=self.queue,
            am_container_spec=self.launch(credentials).to_message(),
            cancel_tokens_when_complete=self.cancel_tokens,
            max_app_attempts=self.max_attempts,
            resource=self.resources.to_message(),
            application_type=self.type,
            keep_containers_across_application_attempts=True,
            application_tags=self.tags,
            attempt_failures_validity_interval=int(VALIDITY_S * 1000),
            log_aggregation_context=LogAggregationContext(
                include_pattern=".*",
                exclude_pattern="",
                log_aggregation_policy_class_name=EVERY_LOG,
            ),
            am_container_resource_request=[request],
        )
        if self.priority is not None:
            context = context.replace(priority=Priority(priority=self.priority))
        if self.node_label:
            context = context.replace(node_label_expression=self.node_label)
        if self.lifetime_s is not None:
            timeout = ApplicationTimeoutMap(
                application_timeout_type=_LIFETIME, timeout=self.lifetime_s
            )
            context = context.replace(application_timeouts=[timeout])
        return context

    def describe(self, credentials: Sequence[str]) -> Dict[str, Any]:
        """The request for a dry run; ``credentials`` names what the credentials hold."""
        return {
            "application_id": str(self.app_id),
            "name": self.name,
            "user": self.user,
            "queue": self.queue,
            "type": self.type,
            "tags": list(self.tags),
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "cancel_tokens_when_complete": self.cancel_tokens,
            "attempt_failures_validity_s": int(VALIDITY_S),
            "keep_containers_across_attempts": True,
            "node_label": self.node_label,
            "lifetime_s": self.lifetime_s,
            "view_acl": self.view_acl,
            "modify_acl": self.modify_acl,
            "log_aggregation": {"include": ".*", "policy": EVERY_LOG.rpartition(".")[2]},
            "master": {
                "resources": _amounts(self.resources),
                "node_label": self.master_label,
                "command": self.command,
                "environment": dict(self.environment),
                "files": {name: _describe_file(file) for name, file in sorted(self.files.items())},
                **({"links": dict(self.links)} if self.links else {}),
                "credentials": list(credentials),
            },
            "roles": {name: dict(role) for name, role in self.roles.items()},
        }


def admit_real_user(job: Job, identity: ClusterIdentity) -> Job:
    """A job whose page and logs the service that submits it for a user may read, too.

    NodeManagers take no ``doAs=``: to them the service is itself. Who may end the job stays as it
    was.
    """
    real_user = identity.real_user
    named = AccessList.parse(job.yarn.view_acl or "")
    if not real_user or not identity.is_secure or named.is_for_all or real_user in named.users:
        return job
    view_acl = str(named | AccessList(frozenset([real_user])))
    return job.replace(yarn=job.yarn._replace(view_acl=view_acl))


def build_request(
    app_id: ApplicationId,
    job: Job,
    artifacts: Sequence[Artifact],
    user: str,
    visibility: Mapping[str, str],
    cancel_tokens: bool = True,
    start: MasterStart = MasterStart(),
) -> AppRequest:
    """The application of a job, for artifacts that are staged or (in a dry run) would be."""
    if find(tuple(artifacts), Use.RUNTIME) is None:
        raise SchedulerError(f"TonY's own code ({RUNTIME}) is not among the staged artifacts")
    files, links = split_links(master_files(job, artifacts, visibility))
    command = master_command(job)
    if start.carries_runtime:
        files.pop(RUNTIME)
        command = carried_master_command(job)
    return AppRequest(
        app_id=app_id,
        name=job.name,
        user=user,
        queue=job.queue,
        type=job.type,
        tags=_application_tags(job),
        priority=job.yarn.priority,
        max_attempts=job.master.max_attempts,
        node_label=job.node_label or "",
        lifetime_s=_lifetime_s(job),
        view_acl=job.yarn.view_acl or user,
        modify_acl=job.yarn.modify_acl or user,
        resources=to_capability(job.master.resources),
        master_label=job.master.node_label or "",
        command=command,
        environment=launch_script.docker_environment(job.master.docker),
        files=files,
        links=links,
        cancel_tokens=cancel_tokens,
        roles={role.name: _describe_role(job, role.name) for role in job.roles},
    )


def master_files(
    job: Job, artifacts: Sequence[Artifact], visibility: Mapping[str, str]
) -> Dict[str, LocalFile]:
    """The local resources of the master's container, where none travels in its credentials."""
    selected = select_master_artifacts(artifacts, preprocess=job.master.preprocess is not None)
    return local_files(selected, visibility)


def master_command(job: Job, verb: Sequence[str] = _MASTER) -> str:
    """The command of the master's container."""
    return launch_script.container_command(
        [job.runtime.python, "-I", "-S", *_start_words(verb)], "stdout", "stderr"
    )


def carried_master_command(job: Job) -> str:
    """The command of a master's container whose runtime travels in its credentials."""
    words = [job.runtime.python, "-I", "-S", "-c", carried_runtime.UNPACK, *_start_words(_MASTER)]
    return launch_script.container_command(words, "stdout", "stderr")


def _start_words(verb: Sequence[str]) -> Sequence[str]:
    return (RUNTIME, "yarn-start", *verb)


def _application_tags(job: Job) -> Tuple[str, ...]:
    """Tags in lower case, as YARN keeps them; a job of another type gets TonY's tag."""
    ours = () if job.type == TYPE else (TAG,)
    return tuple(dict.fromkeys((*(tag.lower() for tag in job.tags), *ours)))


def _lifetime_s(job: Job) -> Optional[int]:
    limit = job.timeouts.application_s
    if limit is None:
        return None
    return max(1, int(limit + job.timeouts.kill_grace_s + LIFETIME_MARGIN_S))


def _describe_role(job: Job, name: str) -> Dict[str, Any]:
    """A role's container request and command, for the dry run."""
    role = job.role(name)
    described: Dict[str, Any] = {
        "instances": role.instances,
        "resources": _amounts(to_capability(role.resources)),
        "node_label": role.node_label or job.node_label or "",
    }
    if role.placement_spec or job.placement_spec:
        described["placement_spec"] = role.placement_spec or job.placement_spec
    if role.allocation_tags:
        described["allocation_tags"] = list(role.allocation_tags)
    environment = launch_script.docker_environment(role.docker)
    if environment:
        described["environment"] = environment
    return described


def _amounts(capability: Capability) -> Dict[str, int]:
    return dict(capability.amounts())


def _describe_file(file: LocalFile) -> Dict[str, Any]:
    return {
        "location": file.location,
        "size": file.size,
        "timestamp_ms": file.timestamp_ms,
        "type": "ARCHIVE" if file.archive else "FILE",
        "visibility": file.visibility,
    }


ACCEPT_S = 30.0  # from the submission to its acceptance or refusal
FIRST_POLL_S = 0.005
LONGEST_POLL_S = 0.25

_NOT_ACCEPTED = ("NEW", "NEW_SAVING", "SUBMITTED")


def master_credentials(
    conf: SiteConfiguration,
    user: str,
    root: str,
    job: Job,
    artifacts: Sequence[Artifact],
    visibility: Visibility,
) -> MasterCredentials:
    """The job for its master."""
    return MasterCredentials(
        job=job_to_json(job.replace(user=user)),
        artifacts=[{**item.to_json(), "visibility": visibility.of(item)} for item in artifacts],
        config=job_to_xml(job, masked=True),
        site=job_credentials.select_master_properties(conf, logs_in=job.hadoop.ship_keytab),
        user=user,
        root=root,
        history_root=job.history.location or f"{root}/history",
    )


def describe_credentials(
    app_id: str,
    root: str,
    credentials: MasterCredentials,
    tokens: Sequence[str],
    start: MasterStart = MasterStart(),
) -> List[str]:
    """Names and sizes of what the credentials hold, for a dry run; ``tokens`` are described."""
    packed, file = job_credentials.master_secrets(b"", credentials, start.largest_job)
    names = [f"{job_credentials.SECRET} (32 bytes)"]
    if start.carries_runtime:
        names.append(f"{carried_runtime.SECRET} (TonY's own code)")
    names += [f"{name} ({len(data)} bytes)" for name, data in packed.items() if data]
    names += tokens
    if file is not None:
        names.append(
            f"{job_credentials.JOB_FILE}, a file of {len(file)} bytes in {root}/apps/{app_id}"
        )
    return names


def upload_job_file(request: AppRequest, root: str, data: bytes) -> AppRequest:
    """Upload a job that is too large for the credentials; the request with that file."""
    folder = f"{root}/apps/{request.app_id}"
    location = f"{folder}/{job_credentials.JOB_FILE}"
    files = registry.filesystem(location)
    files.mkdir(folder, 0o700)
    files.put(location, data, 0o600)
    found = files.stat(location)
    file = LocalFile(location, found.size, found.mtime_ms, visibility=APPLICATION)
    return request.with_file(job_credentials.JOB_FILE, file)


def wait_until_accepted(
    report: Callable[[ApplicationId], AppReport], app_id: ApplicationId
) -> None:
    """Wait until the ResourceManager accepts it; :class:`SchedulerError` if it refuses."""
    end = time.monotonic() + ACCEPT_S
    pause = FIRST_POLL_S
    while True:
        found = report(app_id)
        if found.state not in _NOT_ACCEPTED:
            break
        if time.monotonic() >= end:
            raise SchedulerError(
                f"the cluster has not accepted {app_id} within {ACCEPT_S:g} s (it is"
                f" {found.state}); it was killed"
            )
        time.sleep(pause)
        pause = min(LONGEST_POLL_S, pause * 1.5)
    # An application that never had an attempt reports the attempt -1.
    if found.state == "FAILED" and (found.attempt is None or found.attempt.number < 1):
        raise refusals.refused_submission(str(app_id), found.diagnostics)
