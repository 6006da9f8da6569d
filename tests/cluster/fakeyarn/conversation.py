"""One long conversation with a YARN, and the shape of every answer in it.

It runs on a real cluster and on the fake: what a fake answers must have the fields that the
real one sets, and its refusals the same class and words. ``shapes.json`` is what the real one
(3.4.2) said; ``python -m tests.cluster.fakeyarn.conversation`` in an environment with
HADOOP_CONF_DIR writes it anew.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set

from tony_core.hadoop.errors import AuthenticationError, RemoteError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.rpc import messages
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.rpc.service import Failover, Method
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId, ContainerId, NodeId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages import (
    client_calls,
    container_calls,
    master_calls,
    reports,
    yarn,
)
from tony_core.hadoop.yarn.messages.resource_requests import (
    ResourceBlacklistRequest,
    ResourceRequest,
)
from tony_core.hadoop.yarn.node_manager import START, STATUSES, STOP, NodeManager
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import (
    APPLICATIONS,
    ATTEMPTS,
    CONTAINERS,
    KILL,
    LABELS_TO_NODES,
    METRICS,
    NEW_APPLICATION,
    NODE_LABELS,
    NODES,
    QUEUE,
    QUEUE_USER_ACLS,
    REPORT,
    RESOURCE_TYPES,
    SUBMIT,
    RmClient,
)
from tony_core.hadoop.yarn.rm_master import ALLOCATE, FINISH, REGISTER, RmMaster

SHAPES = Path(__file__).with_name("shapes.json")

SMALL = Capability(64, 1)
_WAIT_S = 30.0

_WHOLE = (
    reports.StringLongMap,
    messages.Token,
    yarn.ApplicationAttemptId,
    yarn.ApplicationId,
    yarn.ContainerId,
    yarn.NodeId,
    yarn.Priority,
    yarn.Resource,
)
"""What is alike everywhere: a line each, with the fields that are set."""

_SOMETIMES = ("completed_container_statuses.container_attributes",)
"""What the real one sets only if the node had reported the container while it ran."""

Shapes = Dict[str, List[str]]


def fields(message: Message, prefix: str = "") -> Set[str]:
    """The paths of all fields that are set."""
    found: Set[str] = set()
    for field in message.FIELDS:
        if not message.has(field.name):
            continue
        value = getattr(message, field.name)
        path = f"{prefix}{field.name}"
        if path in _SOMETIMES:
            continue
        for single in value if field.repeated else [value]:
            if type(single) in _WHOLE:
                own = ", ".join(name.name for name in single.FIELDS if single.has(name.name))
                found.add(f"{path}: {own}")
            elif isinstance(single, Message):
                found |= fields(single, f"{path}.")
            else:
                found.add(path)
    return found


def words(error: RemoteError) -> List[str]:
    """A refusal's class, and its first line without the numbers in it."""
    text = re.sub(r"\d+", "#", error.text.partition("\n")[0])
    return [error.remote_class, re.sub(r"(localhost|#(\.#){3}):#", "HOST:#", text)]


class Conversation:
    """See the module."""

    def __init__(self, conf: SiteConfiguration, user: str) -> None:
        self._conf = conf
        self._client = RmClient.open(conf, identity=ClusterIdentity(user))
        self._nodes: Dict[NodeId, NodeManager] = {}
        self.shapes: Shapes = {}
        self._pause = 0.05

    def run(self) -> Shapes:
        """All of it."""
        try:
            self._cluster()
            self._unmanaged()
            self._managed()
        finally:
            self._client.close()
            for node in self._nodes.values():
                node.close()
        return self.shapes

    # ---------------------------------------------------------------- asking and noting

    def _call(self, name: str, service: Any, method: Method[Any, Any], request: Message) -> Any:
        try:
            answer = service.call(method, request)
        except RemoteError as error:
            self._note(name, words(error))
            return None
        self._note(name, sorted(fields(answer)))
        return answer

    def _note(self, name: str, found: List[str]) -> None:
        self.shapes[name] = sorted({*self.shapes.get(name, ()), *found})

    def _until(self, what: Callable[[], Any], reason: str) -> Any:
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            time.sleep(self._pause)
        raise AssertionError(f"waited {_WAIT_S} s: {reason}")

    def _call_client(self, name: str, method: Method[Any, Any], request: Message) -> Any:
        return self._call(name, self._client.service, method, request)

    # ---------------------------------------------------------------- the parts

    def _cluster(self) -> None:
        call = self._call_client
        call("new application", NEW_APPLICATION, client_calls.GetNewApplicationRequest())
        call("nodes", NODES, client_calls.GetClusterNodesRequest(node_states=(2,)))
        call("metrics", METRICS, client_calls.GetClusterMetricsRequest())
        queue = client_calls.GetQueueInfoRequest(
            queue_name="root", include_child_queues=True, recursive=False
        )
        call("queues", QUEUE, queue)
        call("one queue", QUEUE, client_calls.GetQueueInfoRequest(queue_name="default"))
        call("no such queue", QUEUE, client_calls.GetQueueInfoRequest(queue_name="nowhere"))
        call("queue acls", QUEUE_USER_ACLS, client_calls.GetQueueUserAclsInfoRequest())
        call("node labels", NODE_LABELS, client_calls.GetClusterNodeLabelsRequest())
        call("labelled nodes", LABELS_TO_NODES, client_calls.GetLabelsToNodesRequest())
        call("resource types", RESOURCE_TYPES, client_calls.GetAllResourceTypeInfoRequest())

    def _new(self) -> ApplicationId:
        answer = self._client.service.call(NEW_APPLICATION, client_calls.GetNewApplicationRequest())
        return ApplicationId.from_message(answer.application_id)

    def _context(
        self, app: ApplicationId, **more: Any
    ) -> client_calls.ApplicationSubmissionContext:
        return client_calls.ApplicationSubmissionContext(
            application_id=app.to_message(),
            application_name="conversation",
            queue="default",
            application_type="TONY",
            am_container_spec=yarn.ContainerLaunchContext(),
            resource=SMALL.to_message(),
            max_app_attempts=1,
            application_tags=(f"tag-{app}",),
            keep_containers_across_application_attempts=True,
        ).replace(**more)

    def _submit(self, name: str, context: client_calls.ApplicationSubmissionContext) -> None:
        request = client_calls.SubmitApplicationRequest(application_submission_context=context)
        self._call_client(name, SUBMIT, request)

    def _report(self, name: str, app: ApplicationId, state: str) -> Any:
        request = client_calls.GetApplicationReportRequest(application_id=app.to_message())
        self._until(lambda: self._client.report(app).state == state, f"{name}: {state}")
        return self._call_client(name, REPORT, request)

    def _unmanaged(self) -> None:
        app = self._new()
        self._report_unknown(ApplicationId(app.cluster, 99999))
        large = Capability(1 << 30, 1).to_message()
        self._submit("submit too large", self._context(app, resource=large))
        self._submit("submit to no queue", self._context(self._new(), queue="nowhere"))
        self._submit("submit", self._context(app, unmanaged_am=True))
        self._submit("submit again", self._context(app, unmanaged_am=True))
        self._until(lambda: self._client.report(app).am_rm_token, "the master's token")
        report = self._report("report of an unmanaged master", app, "ACCEPTED")
        token = Token.from_message(report.application_report.am_rm_token)
        request = client_calls.GetApplicationsRequest(application_tags=(f"tag-{app}",))
        self._call_client("applications by tag", APPLICATIONS, request)
        attempts = client_calls.GetApplicationAttemptsRequest(application_id=app.to_message())
        found = endpoints.rm_scheduler(self._conf)
        self._forged(found, token)
        rm = RmMaster.open(found, token, allowed=endpoints.allowed_protections(self._conf))
        try:
            self._master(rm, app)
        finally:
            rm.close()
        self._until(lambda: self._client.attempts(app)[0].state == "FINISHED", "its end")
        self._call_client("attempts", ATTEMPTS, attempts)
        self._report("report of a finished one", app, "FINISHED")

    def _report_unknown(self, app: ApplicationId) -> None:
        request = client_calls.GetApplicationReportRequest(application_id=app.to_message())
        self._call_client("report of an unknown one", REPORT, request)
        kill = client_calls.KillApplicationRequest(application_id=app.to_message())
        self._call_client("kill of an unknown one", KILL, kill)

    def _forged(self, found: Any, token: Token) -> None:
        rm = RmMaster.open(found, Token(token.identifier, b"guess", token.kind))
        rm.service._failover = Failover(1, first_pause=100, longest_pause=100)  # one attempt
        try:
            rm.allocate(within_s=20)
        except AuthenticationError as error:
            refusal = re.search(r"before it has proved who it is: (.*) \((\w+)\)", str(error))
            assert refusal is not None, error
            self._note("forged token", [re.sub(r"\d+", "#", refusal[1]), refusal[2]])
        finally:
            rm.close()

    def _master(self, rm: RmMaster, app: ApplicationId) -> None:
        service = rm.service
        first = master_calls.AllocateRequest(response_id=0)
        self._call("allocate before register", service, ALLOCATE, first)
        finish = master_calls.FinishApplicationMasterRequest(final_application_status=1)
        self._call("finish before register", service, FINISH, finish)
        register = master_calls.RegisterApplicationMasterRequest(host="localhost", rpc_port=1)
        self._call("register", service, REGISTER, register)
        self._call("register again", service, REGISTER, register)
        answer = self._call("allocate nothing", service, ALLOCATE, first)
        again = self._call("the same allocate", service, ALLOCATE, first)
        assert again.response_id == answer.response_id == 1
        wrong = master_calls.AllocateRequest(response_id=17)
        self._call("allocate out of order", service, ALLOCATE, wrong)
        large = self._request(1, 8, Capability(1 << 30, 1))
        self._call("ask too much", service, ALLOCATE, self._allocate(1, ask=(large,)))
        label = self._request(1, 9, SMALL).replace(node_label_expression="nolabel")
        self._call("ask an unknown label", service, ALLOCATE, self._allocate(1, ask=(label,)))
        avoid = ResourceBlacklistRequest(blacklist_additions=("nowhere",))
        answer = self._call("avoid", service, ALLOCATE, self._allocate(1, blacklist_request=avoid))
        found: List[yarn.Container] = []
        tokens: Dict[NodeId, Token] = {}
        completed: Dict[ContainerId, yarn.ContainerStatus] = {}
        number = answer.response_id

        def beat(name: str = "", **more: Any) -> Any:
            nonlocal number
            request = self._allocate(number, **more)
            answer = (
                self._call(name, service, ALLOCATE, request)
                if name
                else (service.call(ALLOCATE, request))
            )
            number = answer.response_id
            found.extend(answer.allocated_containers)
            for one in answer.nm_tokens:
                tokens[NodeId.from_message(one.node_id)] = Token.from_message(one.token)
            for status in answer.completed_container_statuses:
                completed[ContainerId.from_message(status.container_id)] = status
            if answer.allocated_containers:
                self._note("allocated", sorted(fields(answer)))
            if answer.completed_container_statuses:
                self._note("completed", sorted(fields(answer)))
            return answer

        beat("ask", ask=(self._request(3, 7, SMALL),))
        self._until(lambda: beat() and len(found) >= 3, "three containers")
        one, two, three = found[:3]
        containers = client_calls.GetContainersRequest(application_attempt_id=one.id.app_attempt_id)
        self._report("report of a running one", app, "RUNNING")
        self._node(one, Launch(("exit 7",)), tokens)
        self._node(two, Launch(("sleep 100",)), tokens)
        self._node(two, Launch(("sleep 100",)), tokens, "start again")
        self._call_client("containers", CONTAINERS, containers)
        self._statuses(two, tokens)
        self._stop(two, tokens)
        beat(release=tuple(c.id for c in found[2:]))
        self._until(lambda: beat() and len(completed) >= 3, "three ends")
        for name, one_of in (("exit", one), ("stop", two), ("release", three)):
            status = completed[ContainerId.from_message(one_of.id)]
            text = re.sub(r"\d+", "#", re.sub(r"\[.*?\]", "", status.diagnostics))
            self.shapes[f"end by {name}"] = [str(status.exit_status), text]
        self._call("finish", service, FINISH, finish)

    @staticmethod
    def _allocate(number: int, **more: Any) -> master_calls.AllocateRequest:
        return master_calls.AllocateRequest(response_id=number, progress=0.5, **more)

    @staticmethod
    def _request(count: int, request_id: int, what: Capability) -> ResourceRequest:
        return ResourceRequest(
            priority=yarn.Priority(priority=1),
            resource_name="*",
            capability=what.to_message(),
            num_containers=count,
            allocation_request_id=request_id,
        )

    # ---------------------------------------------------------------- nodes

    def _at(self, container: yarn.Container, tokens: Dict[NodeId, Token]) -> NodeManager:
        node = NodeId.from_message(container.node_id)
        if node not in self._nodes:
            allowed = endpoints.allowed_protections(self._conf)
            self._nodes[node] = NodeManager(node, tokens[node], allowed=allowed)
        return self._nodes[node]

    def _node(
        self,
        container: yarn.Container,
        launch: Launch,
        tokens: Dict[NodeId, Token],
        name: str = "start",
    ) -> None:
        manager = self._at(container, tokens)
        start = container_calls.StartContainerRequest(
            container_launch_context=launch.to_message(), container_token=container.container_token
        )
        request = container_calls.StartContainersRequest(start_container_request=(start,))
        answer = self._call(name, manager.service, START, request)
        self._failures(name, answer)
        if name == "start":
            forged = container.container_token.replace(password=b"guess")
            request = request.replace(
                start_container_request=(start.replace(container_token=forged),)
            )
            self._call("start with a forged token", manager.service, START, request)

    def _failures(self, name: str, answer: Any) -> None:
        for failed in answer.failed_requests:
            error = RemoteError(failed.exception.class_name, failed.exception.message)
            self.shapes[f"{name}: failed"] = words(error)

    def _statuses(self, container: yarn.Container, tokens: Dict[NodeId, Token]) -> None:
        manager = self._at(container, tokens)
        unknown = container.id.replace(id=99999)
        request = container_calls.GetContainerStatusesRequest(container_id=(container.id, unknown))
        self._until(
            lambda: manager.service.call(STATUSES, request).status[0].container_sub_state == 2,
            "it to run",
        )
        answer = self._call("statuses", manager.service, STATUSES, request)
        self._failures("statuses", answer)

    def _stop(self, container: yarn.Container, tokens: Dict[NodeId, Token]) -> None:
        manager = self._at(container, tokens)
        unknown = container.id.replace(id=99999)
        request = container_calls.StopContainersRequest(container_id=(container.id, unknown))
        answer = self._call("stop", manager.service, STOP, request)
        self._failures("stop", answer)

    # ---------------------------------------------------------------- managed masters

    def _managed(self) -> None:
        app = self._new()
        sleep = Launch(("sleep 100",)).to_message()
        self._submit("submit", self._context(app, am_container_spec=sleep))
        self._report("report of a waiting master", app, "ACCEPTED")
        attempts = client_calls.GetApplicationAttemptsRequest(application_id=app.to_message())
        self._until(
            lambda: self._client.attempts(app)[0].state in ("LAUNCHED", "RUNNING"), "the master"
        )
        self._call_client("attempts of a managed one", ATTEMPTS, attempts)
        self._report("report of a launched master", app, "ACCEPTED")
        kill = client_calls.KillApplicationRequest(
            application_id=app.to_message(), diagnostics="enough of it"
        )
        self._until(lambda: self._call_client("kill", KILL, kill).is_kill_completed, "its end")
        self._report("report of a killed one", app, "KILLED")
        self.shapes["diagnostics of a killed one"] = self._diagnostics(app)
        app = self._new()
        bad = Launch(("echo a bad day 1>&2; exit 3",)).to_message()
        self._submit("submit", self._context(app, am_container_spec=bad))
        self._report("report of a failed one", app, "FAILED")
        self.shapes["diagnostics of a failed one"] = self._diagnostics(app)
        self._call_client(
            "attempts of a failed one",
            ATTEMPTS,
            client_calls.GetApplicationAttemptsRequest(application_id=app.to_message()),
        )
        app = self._new()
        logs = "1><LOG_DIR>/executor.stdout 2><LOG_DIR>/executor.stderr"
        bad = Launch(
            (f"(echo one 1>&2; sleep 0.1; echo two 1><LOG_DIR>/stderr; exit 3) {logs}",)
        ).to_message()
        self._submit("submit", self._context(app, am_container_spec=bad))
        self._report("report of a failed one", app, "FAILED")
        self.shapes["diagnostics of one with logs"] = self._diagnostics(app)

    def _diagnostics(self, app: ApplicationId) -> List[str]:
        text = self._client.report(app).diagnostics
        text = re.sub(r"\[\d{4}-.*?\]", "[TIME]", text)
        text = re.sub(r"http://\S+", "URL", text)
        return [re.sub(r"\d+", "#", line) for line in text.splitlines()]


def main(user: Optional[str] = None) -> None:
    """Write the shapes of the cluster at hand."""
    from tony_core.hadoop.site.configuration import user_name

    shapes = Conversation(SiteConfiguration.load(), user or user_name()).run()
    SHAPES.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
