"""``tony doctor`` on a cluster: what a job needs of it, thing by thing.

First what can be asked without a trace: configuration, ResourceManager, queue, nodes (and, where
that is all, whether HDFS answers). Then what
costs something: a file on HDFS, and the *probe*, a small application through the same staging,
launch and runtime as a job's (its node side is ``probe``), which looks at its node from
inside. What stands on something that is wrong is skipped, so that the first ``wrong`` is the
one to mend. A ResourceManager whose RPC is closed takes jobs by its web server all the same: that
is only noted, and what needs RPC is skipped.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from tony_core.dataclass import dataclass, replace
from tony_core.files import registry
from tony_core.files.artifact import Artifact
from tony_core.files.location import join, parent
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.records import AppReport
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job, Resources, Role
from tony_core.jsontext import read_object
from tony_core.schedulers.port import Finding, SchedulerError, Verdict
from tony_core.schedulers.yarn import job_credentials, site
from tony_core.schedulers.yarn.client import checks, connectivity, diagnostics, submission
from tony_core.schedulers.yarn.client.cluster_limits import ClusterFacts
from tony_core.schedulers.yarn.client.localfiles import Visibility
from tony_core.schedulers.yarn.job_credentials import MasterParcel

Stage = Callable[[Job, str], Tuple[Artifact, ...]]
"""Stages our own code for an application, and says what it became."""

TYPE = "TONY-DOCTOR"
PROBE_S = 90.0
LOOK_S = 0.2
PAGE_S = 3.0
CLOCK_S = 2.0
"""Tokens and logs are the first to suffer when clocks differ by more."""

MOST_NODES = 100
"""So many are knocked at; a command line is no place for thousands."""

TRIAL_BYTES = 8 << 20
_NOBODY = "the ResourceManager cannot be asked"
_OPEN = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")


@dataclass(frozen=True)
class Cluster:
    """What the client's side has at hand."""

    conf: SiteConfiguration
    user: str
    rm: Callable[[], Any]  # RmClient, or the REST fallback
    gather: Callable[[Job], ClusterFacts]
    root: Callable[[], str]


def examine(cluster: Cluster, job: Job, stage: Optional[Stage]) -> Iterator[Finding]:
    """See the module; nothing is started or written without ``stage``, all else is asked."""
    yield _configuration(cluster)
    by_rpc, by_web = endpoints.rm_client(cluster.conf), endpoints.rm_web(cluster.conf)
    rpc, web = connectivity.why_not(by_rpc), connectivity.why_not(by_web)
    found = _reached("ResourceManager by RPC", rpc, ", ".join(map(str, by_rpc.addresses)))
    yield found._replace(verdict=Verdict.NOTE) if rpc and not web else found
    yield _reached("ResourceManager by web", web, " ".join(by_web.urls))
    facts: Optional[ClusterFacts] = None
    if not rpc or not web:
        try:
            facts = cluster.gather(job)
        except SchedulerError as error:
            yield Finding("asking the cluster", Verdict.WRONG, str(error))
    if facts is not None:
        yield from _judged(job, facts)
        yield _nodes(facts)
    else:
        for what in ("queue", "nodes"):
            yield Finding(what, Verdict.SKIPPED, _NOBODY)
    if stage is None:
        yield _asked(cluster)
        yield Finding("a container", Verdict.SKIPPED, "not asked for")
        return
    storage = _storage(cluster)
    yield storage
    if facts is None:
        yield Finding("a container", Verdict.SKIPPED, _NOBODY)
    elif storage.verdict is Verdict.WRONG:
        yield Finding("a container", Verdict.SKIPPED, "our code cannot be staged")
    else:
        yield from Probe(cluster, job, facts).findings(stage)


def _configuration(cluster: Cluster) -> Finding:
    conf = cluster.conf
    said = f"{', '.join(conf.files)}; {conf.text('fs.defaultFS') or 'no fs.defaultFS'}"
    if not conf.text("fs.defaultFS"):
        advice = "core-site.xml must say fs.defaultFS: jobs are staged there"
        return Finding("configuration", Verdict.WRONG, said, advice)
    return Finding("configuration", Verdict.OK, f"{said}, as {cluster.user}")


def _reached(what: str, why_not: str, where: str) -> Finding:
    if why_not:
        advice = "start it, or correct the address in yarn-site.xml"
        return Finding(what, Verdict.WRONG, why_not, advice)
    return Finding(what, Verdict.OK, where)


def _judged(job: Job, facts: ClusterFacts) -> Iterator[Finding]:
    """By the same rules as a submit, for a job that asks for next to nothing."""
    problems = checks.problems(small(job), facts)
    for problem in problems:
        yield Finding("queue", Verdict.WRONG, problem)
    if not problems and not facts.by_rest:  # which tells nothing of queues
        queue = facts.queue
        said = f"{queue.path or queue.name}: {queue.state}" if queue is not None else job.queue
        yield Finding("queue", Verdict.OK, said)
    for warning in checks.warnings(small(job), facts):
        yield Finding("queue", Verdict.NOTE, warning)


def _nodes(facts: ClusterFacts) -> Finding:
    if facts.by_rest:
        return Finding("nodes", Verdict.SKIPPED, "the ResourceManager's RPC cannot be reached")
    if not facts.nodes:
        advice = "look at the NodeManagers"
        return Finding("nodes", Verdict.WRONG, "no node is running", advice)
    totals: Dict[str, int] = {}
    for node in facts.nodes:
        for name, amount in node.capability.amounts().items():
            totals[name] = totals.get(name, 0) + amount
    said = ", ".join(f"{amount} {name}" for name, amount in sorted(totals.items()))
    return Finding("nodes", Verdict.OK, f"{len(facts.nodes)}, with {said}")


def _asked(cluster: Cluster) -> Finding:
    """Whether HDFS answers, and lets us look where jobs are staged."""
    what = "HDFS"
    try:
        root = cluster.root()
        there = "is there" if registry.filesystem(root).exists(root) else "is made by the first job"
    except (OSError, SchedulerError) as error:
        return Finding(what, Verdict.WRONG, str(error))
    return Finding(what, Verdict.OK, f"answers; {root} {there}; nothing was written")


def _storage(cluster: Cluster) -> Finding:
    what, data = "HDFS", os.urandom(TRIAL_BYTES)
    try:
        root = cluster.root()
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
                    what, Verdict.WRONG, f"{place}: what is read is not what was written"
                )
            read = time.monotonic()
        finally:
            with suppress(OSError):
                files.delete(place)
    except (OSError, SchedulerError) as error:
        return Finding(what, Verdict.WRONG, str(error))
    size = TRIAL_BYTES / 1e6
    speeds = f"{size / (written - began):.0f} MB/s written, {size / (read - written):.0f} read"
    return Finding(what, Verdict.OK, f"{root}: {speeds}")


def small(job: Job) -> Job:
    """A job that asks for next to nothing, in the queue and on the interpreter of this one."""
    role = Role("probe", 0, Resources(memory_mb=1), command="")
    master = replace(job.master, resources=Resources(memory_mb=128), max_attempts=1)
    return job.replace(name="tony doctor", roles=(role,), master=master)


class Probe:
    """The small application, from its staging to what it found."""

    def __init__(self, cluster: Cluster, job: Job, facts: ClusterFacts) -> None:
        self._cluster = cluster
        self._job = small(job)
        self._facts = facts
        self._rm = cluster.rm()

    def findings(self, stage: Stage) -> Iterator[Finding]:
        """What it found, and what it took."""
        what = "a container"
        if not isinstance(self._rm, RmClient):
            yield Finding(what, Verdict.SKIPPED, "the ResourceManager's RPC cannot be reached")
            return
        began = time.monotonic()
        app_id: Optional[ApplicationId] = None
        seen: Dict[str, Any] = {}
        by_proxy = ""
        try:
            app_id = self._rm.new_application().id
            artifacts = stage(self._job, str(app_id))
            self._rm.submit(self._request(app_id, artifacts))
            report, by_proxy, seen = self._follow(app_id)
        except (HadoopError, SchedulerError, OSError) as error:
            yield Finding(what, Verdict.WRONG, str(error))
            return
        finally:
            if app_id is not None:
                with suppress(HadoopError):
                    self._rm.kill(app_id, "the doctor has gone", within_s=5)
        took = time.monotonic() - began
        if report.final_status != "SUCCEEDED":
            said = diagnostics.plain(report.diagnostics).replace("\n", " / ")
            yield Finding(what, Verdict.WRONG, said, self._advice(report))
            return
        seen = seen or _read(report.diagnostics)
        yield Finding(what, Verdict.OK, f"ran on {seen.get('host', '?')} within {took:.1f} s")
        yield from judge(seen, self._facts, by_proxy)

    def _request(self, app_id: ApplicationId, artifacts: Tuple[Artifact, ...]) -> Any:
        cluster, root = self._cluster, self._cluster.root()
        visible = Visibility(root, registry.filesystem)(artifacts)
        request = submission.build(app_id, self._job, artifacts, cluster.user, visible)
        nodes = [node.name for node in self._facts.nodes or ()][:MOST_NODES]
        command = submission.command(self._job, ["probe", *nodes])
        request = replace(request, type=TYPE, command=command, lifetime_s=int(PROBE_S))
        told = MasterParcel(
            job=job_to_json(self._job),
            artifacts=(),
            config="",
            site=site.for_master(cluster.conf),
            user=cluster.user,
            root=root,
            history_root="",
        )
        secrets, _ = job_credentials.for_master(b"", told)
        return request.message(Credentials(secrets=secrets))

    def _follow(self, app_id: ApplicationId) -> Tuple[AppReport, str, Dict[str, Any]]:
        """Until it has ended: the last report, why the proxy did not work, what it showed."""
        end = time.monotonic() + PROBE_S
        why = "the page was never shown"
        seen: Dict[str, Any] = {}
        while True:
            report: AppReport = self._rm.report(app_id)
            if report.state not in _OPEN:
                return report, "" if seen else why, seen
            if time.monotonic() > end:
                raise SchedulerError(
                    f"the container has not come and gone within {PROBE_S:g} s ({report.state}:"
                    f" {report.diagnostics.strip() or 'no reason given'})"
                )
            if report.state == "RUNNING" and report.tracking_url and not seen:
                found = page(report.tracking_url, self._cluster.user)
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


def page(url: str, user: str) -> Union[str, Dict[str, Any]]:
    """What the probe shows through the proxy; or why it could not be read."""
    import requests

    from tony_core.schedulers.yarn.client.rest import content_of

    asked = time.time()
    try:
        params = {"user.name": user}
        with requests.get(
            url, params=params, timeout=PAGE_S, allow_redirects=False, stream=True
        ) as answer:
            if answer.status_code != 200:
                return f"{url} answers {answer.status_code}"
            found = json.loads(content_of(answer))
        if not isinstance(found, dict):
            return f"{url} shows something else"
        clock_off_s = float(found.get("time", asked)) - (asked + time.time()) / 2
    except (
        requests.RequestException,
        ValueError,
        TypeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        return f"{url}: {error}"
    return {**found, "clock_off_s": clock_off_s}


def judge(seen: Mapping[str, Any], facts: ClusterFacts, why_no_proxy: str) -> List[Finding]:
    """What is to be thought of what the probe saw."""
    found = [
        Finding(
            "Python on a node",
            Verdict.OK,
            f"{seen.get('executable')} {seen.get('python')}, {seen.get('system')}",
        )
    ]
    found.append(_clock(seen.get("clock_off_s")))
    storage = str(seen.get("storage", ""))
    found.append(
        Finding("HDFS from a node", Verdict.WRONG if storage else Verdict.OK, storage or "works")
    )
    deaf = seen.get("nodes") or {}
    count = len(facts.nodes or ())
    if not isinstance(deaf, dict):
        said = "the probe's page lists them in a form that this version does not read"
        found.append(Finding("NodeManagers from a node", Verdict.WRONG, said))
    elif deaf:
        said = "; ".join(f"{node}: {why}" for node, why in sorted(deaf.items())[:5])
        advice = "a master must reach every NodeManager: look at firewalls and names"
        found.append(Finding("NodeManagers from a node", Verdict.WRONG, said, advice))
    else:
        found.append(Finding("NodeManagers from a node", Verdict.OK, f"{count} answer"))
    if why_no_proxy:
        advice = "links to jobs' pages go through it: see the ResourceManager's web-proxy settings"
        found.append(Finding("web proxy", Verdict.WRONG, why_no_proxy, advice))
    else:
        found.append(Finding("web proxy", Verdict.OK, "shows a page of a container"))
    for name, what in (("hadoop", "hadoop on a node"), ("nvidia_smi", "nvidia-smi on a node")):
        found.append(Finding(what, Verdict.NOTE, str(seen.get(name) or "there is none")))
    return found


def _clock(off: Any) -> Finding:
    if off is None:
        return Finding("clocks", Verdict.SKIPPED, "read through the proxy, which does not work")
    if not isinstance(off, float):
        said = "the probe's page holds no number of seconds"
        return Finding("clocks", Verdict.WRONG, said, "is something else behind the web proxy?")
    said = f"a node's is {off:+.1f} s from this one's"
    if abs(off) <= CLOCK_S:
        return Finding("clocks", Verdict.OK, said)
    return Finding("clocks", Verdict.WRONG, said, "set both by NTP: tokens expire by the clock")


def _read(diagnostics: str) -> Dict[str, Any]:
    try:
        return read_object(diagnostics)
    except ValueError:
        return {}
