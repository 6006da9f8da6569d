"""``tony doctor`` on a cluster: checks each thing that a job needs of it.

First it checks what leaves no trace: configuration, ResourceManager, queue and nodes (and without
a container also whether HDFS answers). Then it writes a file to HDFS, and runs the *probe*: a
small application with the same staging, launch and runtime as a job, which checks its node from
inside (``node/probe.py``). A check whose basis is wrong is skipped, so that the first ``wrong`` is
the one to fix. Jobs can also be submitted through the ResourceManager's web server: if only its
RPC is closed, that is a note, and checks that need RPC are skipped.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)
from urllib.parse import urlencode, urlsplit

from tony_core.files import registry
from tony_core.files.artifact import Artifact
from tony_core.files.location import join, parent
from tony_core.hadoop.credentials import LOCATION, Credentials
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.records import AppReport
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job, Resources, Role
from tony_core.jsontext import read_object
from tony_core.schedulers.port import CheckResult, Finding, SchedulerError
from tony_core.schedulers.yarn import diagnostics, job_credentials
from tony_core.schedulers.yarn.client import checks, submission
from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits
from tony_core.schedulers.yarn.client.doctor_login import (
    examine_certificate,
    examine_login,
    examine_long_jobs,
    examine_proxy_user,
)
from tony_core.schedulers.yarn.client.resource_manager import ResourceManager, connection_problem
from tony_core.schedulers.yarn.client.submission import AppRequest
from tony_core.schedulers.yarn.job_credentials import MasterCredentials
from tony_core.schedulers.yarn.local_resources import Visibility

if TYPE_CHECKING:
    from tony_core.hadoop.web import WebAccess

Stage = Callable[[Job, str], Tuple[Artifact, ...]]
"""Stages TonY's own code for an application; returns the artifacts."""

TYPE = "TONY-DOCTOR"
PROBE_S = 90.0
LOOK_S = 0.2
PAGE_S = 3.0
CLOCK_S = 2.0
"""Tokens fail first when clocks differ by more."""

MOST_NODES = 100
"""The probe connects to no more NodeManagers: their names travel on its command line."""

TRIAL_BYTES = 8 << 20
_NO_RM = "the ResourceManager cannot be reached"
_NO_PROXY = "read through the proxy, which does not work"
_NO_TICKET = f"the web proxy takes no token ({LOCATION}) and asks for a ticket (kinit)"
_NO_LOGIN = "no server can be asked without a login, or for a user for whom it may not act"
_NO_ANSWER = "the ResourceManager has not answered what was asked"
_OPEN = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")


class Cluster(NamedTuple):
    """The scheduler's access to its cluster."""

    conf: SiteConfiguration
    user: str
    connect: Callable[[], ResourceManager]
    read_limits: Callable[[Job], ClusterLimits]
    staging_root: Callable[[], str]
    web: Callable[[], WebAccess]
    tokens: Callable[[ResourceManager, Sequence[Artifact]], Mapping[str, Token]] = lambda *_: {}
    identity: ClusterIdentity = ClusterIdentity("")


def examine(cluster: Cluster, job: Job, stage: Optional[Stage]) -> Iterator[Finding]:
    """Check the cluster step by step; without ``stage`` nothing is started or written."""
    yield _configuration(cluster)
    refused = False
    for finding in examine_login(cluster.conf, cluster.identity):
        refused = refused or finding.verdict is CheckResult.WRONG
        yield finding
    if not refused:
        yield from examine_long_jobs(cluster.conf, cluster.identity)
    by_rpc, by_web = endpoints.rm_client(cluster.conf), endpoints.rm_web(cluster.conf)
    rpc, web = connection_problem(by_rpc), connection_problem(by_web)
    if not refused:
        for finding in examine_proxy_user(cluster.conf, cluster.identity, by_rpc=not rpc):
            refused = refused or finding.verdict is CheckResult.WRONG
            yield finding
    found = _check_connection("ResourceManager by RPC", rpc, ", ".join(map(str, by_rpc.addresses)))
    yield found._replace(verdict=CheckResult.NOTE) if rpc and not web else found
    yield _check_connection("ResourceManager by web", web, " ".join(by_web.urls))
    if not web and by_web.tls:
        yield from examine_certificate(by_web, cluster.web().tls())
    if refused:
        for what in ("queue", "nodes", "HDFS", "a container"):
            yield Finding(what, CheckResult.SKIPPED, _NO_LOGIN)
        return
    limits: Optional[ClusterLimits] = None
    missing = _NO_RM
    if not rpc or not web:
        try:
            limits = cluster.read_limits(job)
        except SchedulerError as error:
            missing = _NO_ANSWER
            yield Finding("asking the cluster", CheckResult.WRONG, str(error))
    if limits is not None:
        yield from _check_queue(job, limits)
        yield _check_nodes(limits)
    else:
        for what in ("queue", "nodes"):
            yield Finding(what, CheckResult.SKIPPED, missing)
    if stage is None:
        yield _check_hdfs(cluster)
        yield Finding("a container", CheckResult.SKIPPED, "not requested")
        return
    storage = _check_hdfs_write(cluster)
    yield storage
    if limits is None:
        yield Finding("a container", CheckResult.SKIPPED, missing)
    elif storage.verdict is CheckResult.WRONG:
        yield Finding("a container", CheckResult.SKIPPED, "TonY's own code cannot be staged")
    else:
        yield from Probe(cluster, job, limits).findings(stage)


def _configuration(cluster: Cluster) -> Finding:
    conf = cluster.conf
    text = f"{', '.join(conf.files)}; {conf.text('fs.defaultFS') or 'no fs.defaultFS'}"
    if not conf.text("fs.defaultFS"):
        advice = "set fs.defaultFS in core-site.xml: jobs are staged there"
        return Finding("configuration", CheckResult.WRONG, text, advice)
    return Finding("configuration", CheckResult.OK, f"{text}, as {cluster.user}")


def _check_connection(what: str, why_not: str, where: str) -> Finding:
    if why_not:
        advice = "start it, or correct the address in yarn-site.xml"
        return Finding(what, CheckResult.WRONG, why_not, advice)
    return Finding(what, CheckResult.OK, where)


def _check_queue(job: Job, limits: ClusterLimits) -> Iterator[Finding]:
    """The checks of a submit, for a job that asks for next to nothing."""
    problems = checks.find_problems(minimal_job(job), limits)
    advice = ""
    if limits.may_submit is False:
        advice = "choose another one by --queue, or its administrator adds you to its ACL"
    for problem in problems:
        yield Finding("queue", CheckResult.WRONG, problem, advice)
    if not problems and not limits.by_rest:  # the web server reports no queues
        queue = limits.queue
        text = f"{queue.path or queue.name}: {queue.state}" if queue is not None else job.queue
        yield Finding("queue", CheckResult.OK, text)
    for warning in checks.find_warnings(minimal_job(job), limits):
        yield Finding("queue", CheckResult.NOTE, warning)


def _check_nodes(limits: ClusterLimits) -> Finding:
    if limits.by_rest:
        return Finding("nodes", CheckResult.SKIPPED, "the ResourceManager's RPC cannot be reached")
    if not limits.nodes:
        advice = "check the NodeManagers"
        return Finding("nodes", CheckResult.WRONG, "no node is running", advice)
    totals: Dict[str, int] = {}
    for node in limits.nodes:
        for name, amount in node.capability.amounts().items():
            totals[name] = totals.get(name, 0) + amount
    text = ", ".join(f"{amount} {name}" for name, amount in sorted(totals.items()))
    return Finding("nodes", CheckResult.OK, f"{len(limits.nodes)}, with {text}")


def _check_hdfs(cluster: Cluster) -> Finding:
    """Check that HDFS answers, and that the staging root may be read."""
    what = "HDFS"
    try:
        root = cluster.staging_root()
        exists = "exists" if registry.filesystem(root).exists(root) else "the first job creates it"
    except (OSError, SchedulerError) as error:
        return Finding(what, CheckResult.WRONG, str(error))
    return Finding(what, CheckResult.OK, f"answers; {root} {exists}; nothing was written")


def _check_hdfs_write(cluster: Cluster) -> Finding:
    what, data = "HDFS", os.urandom(TRIAL_BYTES)
    try:
        root = cluster.staging_root()
        files = registry.filesystem(root)
        place = join(root, f"doctor-{os.getpid()}-{time.time_ns()}")
        files.mkdir(parent(root))
        files.mkdir(root, 0o700)
        began = time.monotonic()
        try:
            files.put(place, data, 0o600)
            written = time.monotonic()
            if files.get(place) != data:
                return Finding(
                    what, CheckResult.WRONG, f"{place}: what is read is not what was written"
                )
            read = time.monotonic()
        finally:
            with suppress(OSError):
                files.delete(place)
    except (OSError, SchedulerError) as error:
        return Finding(what, CheckResult.WRONG, str(error))
    size = TRIAL_BYTES / 1e6
    speeds = f"{size / (written - began):.0f} MB/s written, {size / (read - written):.0f} read"
    return Finding(what, CheckResult.OK, f"{root}: {speeds}")


def minimal_job(job: Job) -> Job:
    """A job that asks for next to nothing, with the queue and the interpreter of another."""
    role = Role("probe", 0, Resources(memory_mb=1), command="")
    master = job.master._replace(resources=Resources(memory_mb=128), max_attempts=1)
    return job.replace(name="tony doctor", roles=(role,), master=master)


class Probe:
    """The small application: its submission, its end and its findings."""

    def __init__(self, cluster: Cluster, job: Job, limits: ClusterLimits) -> None:
        self._cluster = cluster
        self._job = minimal_job(job)
        self._limits = limits
        self._rm = cluster.connect()

    def findings(self, stage: Stage) -> Iterator[Finding]:
        """Run the probe; its findings."""
        what = "a container"
        if self._limits.by_rest:
            yield Finding(what, CheckResult.SKIPPED, "the ResourceManager's RPC cannot be reached")
            return
        began = time.monotonic()
        app_id: Optional[ApplicationId] = None
        seen: Dict[str, Any] = {}
        by_proxy = ""
        try:
            app_id = self._rm.new_application().id
            artifacts = stage(self._job, str(app_id))
            request, secrets = self._request(app_id, artifacts)
            tokens = self._cluster.tokens(self._rm, artifacts)
            self._rm.submit(request, Credentials(tokens, secrets))
            report, by_proxy, seen = self._follow(app_id)
        except (HadoopError, SchedulerError, OSError) as error:
            yield Finding(what, CheckResult.WRONG, str(error))
            return
        finally:
            if app_id is not None:
                with suppress(HadoopError):
                    self._rm.kill(app_id, "tony doctor has ended", within_s=5)
        took = time.monotonic() - began
        if report.final_status != "SUCCEEDED":
            text = diagnostics.explain_master_failure(report.diagnostics).replace("\n", " / ")
            yield Finding(what, CheckResult.WRONG, text, self._advice(report))
            return
        seen = seen or _parse_page(report.diagnostics)
        yield Finding(what, CheckResult.OK, f"ran on {seen.get('host', '?')} within {took:.1f} s")
        by_tokens = self._cluster.identity.tokens is not None
        yield from judge_page(seen, self._limits, by_proxy, by_tokens=by_tokens)

    def _request(
        self, app_id: ApplicationId, artifacts: Tuple[Artifact, ...]
    ) -> Tuple[AppRequest, Dict[str, bytes]]:
        cluster, root = self._cluster, self._cluster.staging_root()
        visible = Visibility(root, registry.filesystem)(artifacts)
        request = submission.build_request(app_id, self._job, artifacts, cluster.user, visible)
        nodes = [node.name for node in self._limits.nodes or ()][:MOST_NODES]
        command = submission.master_command(self._job, ["probe", *nodes])
        request = request._replace(type=TYPE, command=command, lifetime_s=int(PROBE_S))
        credentials = MasterCredentials(
            job=job_to_json(self._job),
            artifacts=(),
            config="",
            site=job_credentials.select_master_properties(cluster.conf),
            user=cluster.user,
            root=root,
            history_root="",
        )
        secrets, _ = job_credentials.master_secrets(b"", credentials)
        return request, secrets

    def _follow(self, app_id: ApplicationId) -> Tuple[AppReport, str, Dict[str, Any]]:
        """Wait for its end: the last report, why its page could not be read, the page's content."""
        end = time.monotonic() + PROBE_S
        why = "its page was never shown"
        seen: Dict[str, Any] = {}
        while True:
            report: AppReport = self._rm.report(app_id)
            if report.state not in _OPEN:
                return report, "" if seen else why, seen
            if time.monotonic() > end:
                raise SchedulerError(
                    f"the probe has not ended within {PROBE_S:g} s ({report.state}:"
                    f" {report.diagnostics.strip() or 'no reason given'})"
                )
            if report.state == "RUNNING" and report.tracking_url and not seen:
                found = read_page(report.tracking_url, self._cluster.web())
                if isinstance(found, str):
                    why = found
                elif found.get("ready"):
                    seen = found
            time.sleep(LOOK_S)

    def _advice(self, report: AppReport) -> str:
        python = self._job.runtime.python
        if any(words in report.diagnostics for words in ("exitCode: 127", "needs 3.")):
            return f"{python} must be Python 3.9 or newer on every node; name one: --python"
        return ""


def read_page(url: str, access: WebAccess) -> Union[str, Dict[str, Any]]:
    """The probe's page, through the proxy; a text if it could not be read."""
    from tony_core.hadoop.web import WebClient
    from tony_core.schedulers.yarn.client.rest import read_content

    web = WebClient(access, PAGE_S)
    sent = time.time()
    try:
        parts = urlsplit(url)
        target = f"{parts.path or '/'}?{urlencode(access.query())}".rstrip("?")
        with web.get(parts.netloc, target, tls=parts.scheme == "https") as answer:
            if answer.status != 200:
                return f"{url} answers {answer.status}"
            found = json.loads(read_content(answer))
        if not isinstance(found, dict):
            return f"{url} does not show the probe's page"
        clock_off_s = float(found.get("time", sent)) - (sent + time.time()) / 2
    except (
        OSError,
        HadoopError,
        ValueError,
        TypeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        return f"{url}: {error}"
    finally:
        web.close()
    return {**found, "clock_off_s": clock_off_s}


def judge_page(
    seen: Mapping[str, Any], limits: ClusterLimits, why_no_proxy: str, *, by_tokens: bool = False
) -> List[Finding]:
    """The findings from the probe's page.

    ``by_tokens``: the client has no ticket, without which the proxy of a secure cluster is closed.
    """
    found = [
        Finding(
            "Python on a node",
            CheckResult.OK,
            f"{seen.get('executable')} {seen.get('python')}, {seen.get('system')}",
        )
    ]
    refused = by_tokens and why_no_proxy.endswith("answers 401")
    found.append(_clock(seen.get("clock_off_s"), _NO_TICKET if refused else _NO_PROXY))
    storage = str(seen.get("storage", ""))
    found.append(
        Finding(
            "HDFS from a node", CheckResult.WRONG if storage else CheckResult.OK, storage or "works"
        )
    )
    unreachable = seen.get("nodes") or {}
    count = len(limits.nodes or ())
    if not isinstance(unreachable, dict):
        text = "the probe's page lists them in an unknown form"
        found.append(Finding("NodeManagers from a node", CheckResult.WRONG, text))
    elif unreachable:
        text = "; ".join(f"{node}: {why}" for node, why in sorted(unreachable.items())[:5])
        advice = "a master must reach every NodeManager: check firewalls and host names"
        found.append(Finding("NodeManagers from a node", CheckResult.WRONG, text, advice))
    else:
        found.append(Finding("NodeManagers from a node", CheckResult.OK, f"{count} answer"))
    if refused:
        found.append(Finding("web proxy", CheckResult.SKIPPED, _NO_TICKET))
    elif why_no_proxy:
        advice = "links to jobs' pages go through it: see the ResourceManager's web-proxy settings"
        found.append(Finding("web proxy", CheckResult.WRONG, why_no_proxy, advice))
    else:
        found.append(Finding("web proxy", CheckResult.OK, "shows a page of a container"))
    for name, what in (("hadoop", "hadoop on a node"), ("nvidia_smi", "nvidia-smi on a node")):
        found.append(Finding(what, CheckResult.NOTE, str(seen.get(name) or "there is none")))
    return found


def _clock(off: Any, why_not: str) -> Finding:
    if off is None:
        return Finding("clocks", CheckResult.SKIPPED, why_not)
    if not isinstance(off, float):
        text = "the probe's page holds no number of seconds"
        return Finding("clocks", CheckResult.WRONG, text, "is something else behind the web proxy?")
    text = f"a node's is {off:+.1f} s from this one's"
    if abs(off) <= CLOCK_S:
        return Finding("clocks", CheckResult.OK, text)
    return Finding("clocks", CheckResult.WRONG, text, "set both by NTP: tokens expire by the clock")


def _parse_page(diagnostics: str) -> Dict[str, Any]:
    try:
        return read_object(diagnostics)
    except ValueError:
        return {}
