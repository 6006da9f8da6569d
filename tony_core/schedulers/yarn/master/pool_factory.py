"""Creates a master's context and pool from the container that YARN started it in."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    MutableMapping,
    Optional,
    Tuple,
)

from tony_core.files.artifact import Artifact, Use, find
from tony_core.files.location import join
from tony_core.files.registry import register
from tony_core.hadoop.credentials import LOCATION, Credentials, am_rm_token
from tony_core.hadoop.identity import ClusterIdentity, container_identity, hdfs_token_service
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import HDFS_VARIABLE, hdfs_environment
from tony_core.hadoop.tokens import AM_RM, Token, attempt_of
from tony_core.hadoop.yarn.node_manager import NodeManager, NodeTokens
from tony_core.hadoop.yarn.rm_master import RmMaster
from tony_core.job.jsonfile import job_from_json
from tony_core.job.spec import Job
from tony_core.schedulers import container_pool, port
from tony_core.schedulers.yarn import home, job_credentials
from tony_core.schedulers.yarn.local_resources import visibility_by_uri
from tony_core.schedulers.yarn.master.application import (
    MASTER_LOST_S,
    Application,
    exit_superseded,
)
from tony_core.schedulers.yarn.master.container_requests import ContainerRequests
from tony_core.schedulers.yarn.master.launch_context import RUNTIME, LaunchContexts
from tony_core.schedulers.yarn.master.nodes import NodeReports, UserClient
from tony_core.schedulers.yarn.master.pool import YarnPool
from tony_core.schedulers.yarn.master.preemption import preemption_times
from tony_core.schedulers.yarn.master.user_tokens import UserTokens, token_dates
from tony_core.schedulers.yarn.master.webproxy import web_proxy
from tony_core.schedulers.yarn.node import start

if TYPE_CHECKING:
    from tony_core.files.hdfs import WebHdfsFileSystem

JOB_FOLDER = "tony-job"


def open_master(arguments: Any) -> Tuple[container_pool.MasterContext, YarnPool]:
    """Context and pool of the master in this container's working folder."""
    credentials = Credentials.of_container(os.environ)
    token = am_rm_token(credentials)
    if token is None:
        raise port.SchedulerError("this container's credentials hold no token of a master")
    sent = job_credentials.read_master_credentials(credentials.secrets)
    folder = write_job_folder(sent, os.path.abspath(JOB_FOLDER))
    fetcher = fetched = refusal = None
    shipped = job_credentials.read_shipped_keytab(credentials.secrets)
    if shipped is not None:
        from tony_core.schedulers.yarn.master import token_fetcher

        fetcher = token_fetcher.create_fetcher(shipped, sent, os.environ)
        limit_s = min(token_fetcher.OVERDUE_S, expiry_s(SiteConfiguration.of(sent.site)) / 2)
        try:
            fetched = token_fetcher.fetch_overdue(fetcher, credentials, log, limit_s)
        except port.LastingRefusal as error:
            refusal = error  # ends the job: for that the scheduler has to know this master
        if fetched is not None:  # before the first look at HDFS, where the journal is
            credentials = credentials.with_renewed(Credentials.decode(fetched.content))
    tokens = UserTokens(token_dates(credentials, fetched), fetcher, fetched, refusal)
    tokens.on_renewal(register_hdfs(sent, credentials).renew_tokens)
    give_programs_their_tokens(os.environ)
    return create_master(sent, credentials, token, os.environ, folder, tokens)


def give_programs_their_tokens(env: MutableMapping[str, str]) -> None:
    """Point ``tony.am.command`` to the token file of programs, away from the master's own."""
    path = env.get(start.TOKEN_FILE_VARIABLE)
    if path:
        env[LOCATION] = path
    else:
        env.pop(LOCATION, None)


def create_master(
    sent: job_credentials.MasterCredentials,
    credentials: Credentials,
    token: Token,
    env: Mapping[str, str],
    folder: str,
    tokens: UserTokens,
) -> Tuple[container_pool.MasterContext, YarnPool]:
    """Context and pool from a container's credentials, environment and folder."""
    attempt = attempt_of(token)
    if attempt is None:
        raise port.SchedulerError("the token of this container is no master's")
    job = job_from_json(sent.job)
    conf = SiteConfiguration.of(sent.site)
    app_id = str(attempt.application)
    state_dir = join(sent.root, "apps", app_id)
    host = env.get("NM_HOST") or socket.gethostname()
    context = container_pool.MasterContext(
        app_id=app_id,
        attempt=attempt.number,
        job_dir=folder,
        work_dir=env.get("LOG_DIRS", "").split(",")[0] or os.getcwd(),
        state_dir=state_dir,
        history_dir=join(sent.history_root, app_id),
        secret=credentials.secrets.get(job_credentials.SECRET, b""),
        host=host,
        bind="0.0.0.0",
        proxy=web_proxy(conf, attempt.application, job.yarn.view_acl or ""),
        state_pointer=home.pointer_folder(
            home.home_or_root(conf, sent.user, sent.root), sent.root, app_id
        ),
        localized_dir=os.getcwd(),
    )
    application = Application(
        attempt=attempt,
        user=sent.user,
        max_attempts=min(
            job.master.max_attempts, conf.integer("yarn.resourcemanager.am.max-attempts", 2)
        ),
        host=host,
        with_port=conf.boolean("yarn.scheduler.include-port-in-node-name", False),
        node_scheme="https" if endpoints.yarn_uses_tls(conf) else "http",
        placement_spec=job.placement_spec,
        master_lost_s=master_lost_s(conf),
        preemption=preemption_times(conf),
    )
    executor = job_credentials.ExecutorCredentials(
        job_credentials.select_executor_properties(sent.site), sent.user, state_dir
    )
    for_programs = _program_environment(conf, sent.user)
    os.environ.update(for_programs)  # for tony.am.command
    contexts = LaunchContexts(
        python=job.runtime.python,
        runtime=_runtime_name(sent),
        images={role.name: role.docker for role in job.roles if role.docker is not None},
        visibility=visibility_by_uri(sent.artifacts),
        site=executor.encode(),
        environment=for_programs,
        credentials=Credentials(credentials.without(AM_RM).tokens),
        view_acl=job.yarn.view_acl or "",
        modify_acl=job.yarn.modify_acl or "",
    )
    identity = container_identity(conf, sent.user, credentials)
    program_tokens = env.get(start.TOKEN_FILE_VARIABLE, "")
    if program_tokens:  # of tony.am.command
        tokens.on_renewal(lambda fresh: fresh.write(program_tokens))
    return context, connect_pool(conf, application, job, contexts, token, identity, tokens)


def master_lost_s(conf: SiteConfiguration) -> float:
    """How long executors wait for a next master: longer than YARN waits before it starts one."""
    return max(MASTER_LOST_S, expiry_s(conf) * 4 / 3)


def expiry_s(conf: SiteConfiguration) -> float:
    """How long YARN waits for a silent master."""
    return conf.integer("yarn.am.liveness-monitor.expiry-interval-ms", 600_000) / 1000


def _program_environment(conf: SiteConfiguration, user: str) -> Dict[str, str]:
    """The variables by which a program reaches HDFS itself."""
    service = partial(hdfs_token_service, conf) if endpoints.is_secure(conf) else None
    found = hdfs_environment(conf, user, service)
    return {HDFS_VARIABLE: found} if found else {}


def connect_pool(
    conf: SiteConfiguration,
    application: Application,
    job: Job,
    contexts: LaunchContexts,
    token: Token,
    identity: ClusterIdentity,
    user_tokens: Optional[UserTokens] = None,
    superseded: Callable[[str], object] = exit_superseded,
) -> YarnPool:
    """A pool for the ResourceManager of a site; connects later."""
    allowed = endpoints.allowed_protections(conf)
    client = UserClient(conf, identity)
    user_tokens = user_tokens or UserTokens()
    user_tokens.on_renewal(lambda fresh: client.renew(identity._replace(tokens=fresh)))
    return YarnPool(
        RmMaster.open(endpoints.rm_scheduler(conf), token, allowed=allowed),
        application,
        ContainerRequests([role.name for role in job.roles], str(application.attempt)),
        contexts,
        NodeReports(client.nodes, application.with_port, log),
        tokens=NodeTokens(),
        open_node=lambda node, secret: NodeManager(node, secret, allowed=allowed),
        report=lambda: client.report(application.attempt.application),
        end=lambda why: client.fail(application.attempt.application, why),
        log=log,
        closing=client.close,
        superseded=superseded,
        user_tokens=user_tokens,
    )


def write_job_folder(sent: job_credentials.MasterCredentials, folder: str) -> str:
    """Write the job folder that every scheduler gives a master; returns its path."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    files = {
        "job.json": sent.job,
        "artifacts.json": json.dumps([dict(item) for item in sent.artifacts]),
        "tony-final.xml": sent.config,
    }
    for name, text in files.items():
        handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
    return folder


def register_hdfs(
    sent: job_credentials.MasterCredentials, credentials: Credentials
) -> WebHdfsFileSystem:
    """Register HDFS by the properties and tokens that the client sent."""
    from tony_core.files.hdfs import WebHdfsFileSystem

    conf = SiteConfiguration.of(sent.site)
    files = WebHdfsFileSystem(conf, container_identity(conf, sent.user, credentials))
    for scheme in ("hdfs", "webhdfs", "swebhdfs"):
        register(scheme, lambda: files)
    return files


def _runtime_name(sent: job_credentials.MasterCredentials) -> str:
    """The name of TonY's own code in a container's folder."""
    artifacts: List[Artifact] = [Artifact.from_json(item) for item in sent.artifacts]
    found = find(tuple(artifacts), Use.RUNTIME)
    return found.name if found is not None else RUNTIME


def log(text: str) -> None:
    """Write a line to the master's own log."""
    sys.stderr.write(f"yarn: {text}\n")
    sys.stderr.flush()
