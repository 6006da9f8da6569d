"""From a container that YARN started to a master's pool: what it was given, and who it is."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, Dict, List, Mapping, Tuple

from tony_core.files.artifact import Artifact, Use, find
from tony_core.files.location import join
from tony_core.files.registry import register
from tony_core.hadoop.credentials import Credentials, am_rm_token
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import HDFS_VARIABLE, hdfs_environment
from tony_core.hadoop.tokens import AM_RM, Token, attempt_of
from tony_core.hadoop.yarn.nm import NodeManager, NodeTokens
from tony_core.hadoop.yarn.rm_master import RmMaster
from tony_core.job.jsonfile import job_from_json
from tony_core.job.spec import Job
from tony_core.schedulers import port
from tony_core.schedulers.yarn import home, job_credentials
from tony_core.schedulers.yarn.local_resources import visibility_by_uri
from tony_core.schedulers.yarn.master.application import MASTER_LOST_S, Application
from tony_core.schedulers.yarn.master.container_requests import Asking
from tony_core.schedulers.yarn.master.launch_context import RUNTIME, Contexts
from tony_core.schedulers.yarn.master.nodes import ClientSide, ClusterNodes
from tony_core.schedulers.yarn.master.pool import YarnPool
from tony_core.schedulers.yarn.master.webproxy import web_proxy

JOB_FOLDER = "tony-job"


def open_here(arguments: Any) -> Tuple[port.MasterContext, YarnPool]:
    """For the verb ``master``, in the container's working folder; its words say nothing more."""
    credentials = Credentials.of_container(os.environ)
    token = am_rm_token(credentials)
    if token is None:
        raise port.SchedulerError("this container holds no token of a master: YARN gave it none")
    told = job_credentials.read_master_credentials(credentials.secrets)
    folder = write_job_folder(told, os.path.abspath(JOB_FOLDER))
    use_files(told)
    return open_master(told, credentials, token, os.environ, folder)


def open_master(
    told: job_credentials.MasterCredentials,
    credentials: Credentials,
    token: Token,
    env: Mapping[str, str],
    folder: str,
) -> Tuple[port.MasterContext, YarnPool]:
    """With what was found in a container's folder and environment."""
    attempt = attempt_of(token)
    if attempt is None:
        raise port.SchedulerError("the token of this container is no master's")
    job = job_from_json(told.job)
    conf = SiteConfiguration.of(told.site)
    app_id = str(attempt.application)
    state_dir = join(told.root, "apps", app_id)
    host = env.get("NM_HOST") or socket.gethostname()
    context = port.MasterContext(
        app_id=app_id,
        attempt=attempt.number,
        job_dir=folder,
        work_dir=env.get("LOG_DIRS", "").split(",")[0] or os.getcwd(),
        state_dir=state_dir,
        history_dir=join(told.history_root, app_id),
        secret=credentials.secrets.get(job_credentials.SECRET, b""),
        host=host,
        bind="0.0.0.0",
        proxy=web_proxy(conf, attempt.application, job.yarn.view_acl or ""),
        pointer=home.pointer_folder(
            home.home_or_root(conf, told.user, told.root), told.root, app_id
        ),
        localized_dir=os.getcwd(),
    )
    application = Application(
        attempt=attempt,
        user=told.user,
        max_attempts=min(
            job.master.max_attempts, conf.integer("yarn.resourcemanager.am.max-attempts", 2)
        ),
        host=host,
        with_port=conf.boolean("yarn.scheduler.include-port-in-node-name", False),
        node_scheme="https" if conf.text("yarn.http.policy").upper() == "HTTPS_ONLY" else "http",
        placement_spec=job.placement_spec,
        master_lost_s=master_lost_s(conf),
    )
    finder = job_credentials.ExecutorCredentials(
        job_credentials.select_executor_properties(told.site), told.user, state_dir
    )
    for_programs = _for_programs(conf, told.user)
    os.environ.update(for_programs)  # tony.am.command runs beside us
    contexts = Contexts(
        python=job.runtime.python,
        runtime=_runtime(told),
        images={role.name: role.docker for role in job.roles if role.docker is not None},
        visibility=visibility_by_uri(told.artifacts),
        site=finder.encode(),
        environment=for_programs,
        credentials=Credentials(credentials.without(AM_RM).tokens),
    )
    return context, pool_of(conf, application, job, contexts, token)


def master_lost_s(conf: SiteConfiguration) -> float:
    """Longer than YARN itself waits for a silent master before it starts the next."""
    expiry_s = conf.integer("yarn.am.liveness-monitor.expiry-interval-ms", 0) / 1000
    return max(MASTER_LOST_S, expiry_s * 4 / 3)


def _for_programs(conf: SiteConfiguration, user: str) -> Dict[str, str]:
    """What a program needs to reach HDFS by itself."""
    found = hdfs_environment(conf, user)
    return {HDFS_VARIABLE: found} if found else {}


def pool_of(
    conf: SiteConfiguration,
    application: Application,
    job: Job,
    contexts: Contexts,
    token: Token,
    **more: Any,
) -> YarnPool:
    """A pool that speaks to the ResourceManager of a site; nothing is connected yet."""
    allowed = endpoints.allowed_protections(conf)
    client = ClientSide(conf, application.user)
    tokens = NodeTokens()
    return YarnPool(
        RmMaster.open(endpoints.rm_scheduler(conf), token, allowed=allowed),
        application,
        Asking([role.name for role in job.roles], str(application.attempt)),
        contexts,
        ClusterNodes(client.nodes, application.with_port, say),
        tokens=tokens,
        open_node=lambda node, secret: NodeManager(node, secret, allowed=allowed),
        report=lambda: client.report(application.attempt.application),
        end=lambda why: client.fail(application.attempt.application, why),
        say=say,
        closing=client.close,
        **more,
    )


def write_job_folder(told: job_credentials.MasterCredentials, folder: str) -> str:
    """The job as every scheduler hands it to a master: a folder of three files."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    files = {
        "job.json": told.job,
        "artifacts.json": json.dumps([dict(item) for item in told.artifacts]),
        "tony-final.xml": told.config,
    }
    for name, text in files.items():
        handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
    return folder


def use_files(told: job_credentials.MasterCredentials) -> None:
    """HDFS as the client knew it: no configuration of Hadoop is needed here."""
    from tony_core.files.hdfs import WebHdfsFileSystem

    files = WebHdfsFileSystem(SiteConfiguration.of(told.site), told.user)
    for scheme in ("hdfs", "webhdfs", "swebhdfs"):
        register(scheme, lambda: files)


def _runtime(told: job_credentials.MasterCredentials) -> str:
    """Our code's name in a container's folder."""
    artifacts: List[Artifact] = [Artifact.from_json(item) for item in told.artifacts]
    found = find(tuple(artifacts), Use.RUNTIME)
    return found.name if found is not None else RUNTIME


def say(words: str) -> None:
    """To the master's own log."""
    sys.stderr.write(f"yarn: {words}\n")
    sys.stderr.flush()
