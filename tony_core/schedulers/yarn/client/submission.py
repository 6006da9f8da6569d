"""What the ResourceManager is asked to start: a job as an application, exactly and printable.

:func:`build` decides everything; the request is then data. It is shown by :meth:`AppRequest.shown`
(without the secrets, which are only named) and sent by :meth:`AppRequest.message` over RPC, or
by ``rest`` as JSON.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from tony_core.dataclass import dataclass, replace
from tony_core.files.artifact import Artifact, Use, find
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.launch import Launch, LocalFile
from tony_core.hadoop.yarn.messages.asks import ResourceRequest
from tony_core.hadoop.yarn.messages.client_calls import (
    ApplicationSubmissionContext,
    ApplicationTimeoutMap,
)
from tony_core.hadoop.yarn.messages.yarn import LogAggregationContext, Priority
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Job
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn import quoting
from tony_core.schedulers.yarn.amounts import capability_of
from tony_core.schedulers.yarn.client import docker
from tony_core.schedulers.yarn.client.localfiles import for_master, linked_names, local_files
from tony_core.schedulers.yarn.client.status import TAG, TYPE
from tony_core.schedulers.yarn.node import start

RUNTIME = "tony-runtime"
"""Our own code, as a folder of every container."""

VALIDITY_S = 600.0
"""A master's failure is forgotten after that long: a job of weeks may lose several."""

LIFETIME_MARGIN_S = 60.0
"""Our own master ends a job at its timeout, and says why; YARN, which would only kill, later."""

EVERY_LOG = (
    "org.apache.hadoop.yarn.server.nodemanager.containermanager.logaggregation."
    "AllContainerLogAggregationPolicy"
)
"""The logs of all containers are kept, whatever a site does by default."""

_LIFETIME = 1
_ANYWHERE = "*"


@dataclass(frozen=True)
class AppRequest:
    """One application, as it is asked for."""

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
    roles: Mapping[str, Mapping[str, Any]]  # for people: what the master will ask for

    def with_file(self, name: str, file: LocalFile) -> AppRequest:
        """With one more file for the master's container."""
        return replace(self, files={**self.files, name: file})

    def secrets(self) -> Dict[str, bytes]:
        """What the credentials of the master's container hold besides the parcel."""
        return {start.ALIAS: start.pack({}, (), self.links)} if self.links else {}

    def launch(self, credentials: Credentials) -> Launch:
        """How the master's container starts."""
        return Launch(
            command=(self.command,),
            environment=self.environment,
            files=self.files,
            credentials=credentials,
            view_acl=self.view_acl,
            modify_acl=self.modify_acl,
        )

    def message(self, credentials: Credentials) -> ApplicationSubmissionContext:
        """As the ResourceManager's RPC takes it."""
        ask = ResourceRequest(
            priority=Priority(priority=0),
            resource_name=_ANYWHERE,
            capability=self.resources.message(),
            num_containers=1,
            relax_locality=True,
        )
        if self.master_label:
            ask = ask.replace(node_label_expression=self.master_label)
        context = ApplicationSubmissionContext(
            application_id=self.app_id.message(),
            application_name=self.name,
            queue=self.queue,
            am_container_spec=self.launch(credentials).message(),
            max_app_attempts=self.max_attempts,
            resource=self.resources.message(),
            application_type=self.type,
            keep_containers_across_application_attempts=True,
            application_tags=self.tags,
            attempt_failures_validity_interval=int(VALIDITY_S * 1000),
            log_aggregation_context=LogAggregationContext(
                include_pattern=".*",
                exclude_pattern="",
                log_aggregation_policy_class_name=EVERY_LOG,
            ),
            am_container_resource_request=[ask],
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

    def shown(self, parcel: Sequence[str]) -> Dict[str, Any]:
        """All of it for people; ``parcel`` names what goes in the credentials."""
        return {
            "application_id": str(self.app_id),
            "name": self.name,
            "user": self.user,
            "queue": self.queue,
            "type": self.type,
            "tags": list(self.tags),
            "priority": self.priority,
            "max_attempts": self.max_attempts,
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
                "files": {name: _file(file) for name, file in sorted(self.files.items())},
                **({"links": dict(self.links)} if self.links else {}),
                "parcel": list(parcel),
            },
            "roles": {name: dict(role) for name, role in self.roles.items()},
        }


def build(
    app_id: ApplicationId,
    job: Job,
    artifacts: Sequence[Artifact],
    user: str,
    visibility: Mapping[str, str],
) -> AppRequest:
    """The application for a job whose artifacts are staged (or would be)."""
    if find(tuple(artifacts), Use.RUNTIME) is None:
        raise SchedulerError(f"nothing that is staged is TonY's own code ({RUNTIME})")
    brought = for_master(artifacts, preprocess=job.master.preprocess is not None)
    files, links = linked_names(local_files(brought, visibility))
    return AppRequest(
        app_id=app_id,
        name=job.name,
        user=user,
        queue=job.queue,
        type=job.type,
        tags=_tags(job),
        priority=job.yarn.priority,
        max_attempts=job.master.max_attempts,
        node_label=job.node_label or "",
        lifetime_s=_lifetime(job),
        view_acl=job.yarn.view_acl or user,
        modify_acl=job.yarn.modify_acl or user,
        resources=capability_of(job.master.resources),
        master_label=job.master.node_label or "",
        command=command(job),
        environment=docker.environment(job.master.docker),
        files=files,
        links=links,
        roles={role.name: _role(job, role.name) for role in job.roles},
    )


def command(job: Job, verb: Sequence[str] = ("master", "--scheduler", "yarn")) -> str:
    """Of the master's container."""
    words = [job.runtime.python, "-I", "-S", RUNTIME, "yarn-start", *verb]
    return quoting.command(words, "stdout", "stderr")


def _tags(job: Job) -> Tuple[str, ...]:
    """As YARN keeps them; one of another type is found again by a tag of ours."""
    ours = () if job.type == TYPE else (TAG,)
    return tuple(dict.fromkeys((*(tag.lower() for tag in job.tags), *ours)))


def _lifetime(job: Job) -> Optional[int]:
    asked = job.timeouts.application_s
    if asked is None:
        return None
    return max(1, int(asked + job.timeouts.kill_grace_s + LIFETIME_MARGIN_S))


def _role(job: Job, name: str) -> Dict[str, Any]:
    """What the master will ask for and start: for the dry run."""
    role = job.role(name)
    told: Dict[str, Any] = {
        "instances": role.instances,
        "resources": _amounts(capability_of(role.resources)),
        "node_label": role.node_label or job.node_label or "",
    }
    if role.placement_spec or job.placement_spec:
        told["placement_spec"] = role.placement_spec or job.placement_spec
    if role.allocation_tags:
        told["allocation_tags"] = list(role.allocation_tags)
    environment = docker.environment(role.docker)
    if environment:
        told["environment"] = environment
    return told


def _amounts(capability: Capability) -> Dict[str, int]:
    return dict(capability.amounts())


def _file(file: LocalFile) -> Dict[str, Any]:
    return {
        "location": file.location,
        "size": file.size,
        "timestamp_ms": file.timestamp_ms,
        "type": "ARCHIVE" if file.archive else "FILE",
        "visibility": file.visibility,
    }
