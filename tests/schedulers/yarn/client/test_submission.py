"""A job as an application: shown as it is, sent as it is shown."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any, Optional

import pytest

from tests.hadoop.kerberos.handshakes import ScriptedLogin
from tests.schedulers.yarn.clusters import ROOT, RUNTIME, artifact, job, role
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.identity import ClusterIdentity, act_for
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Docker, Job, MasterSpec, Resources, Runtime, Timeouts, Yarn
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn import launch_script
from tony_core.schedulers.yarn.client.rest import submission_body
from tony_core.schedulers.yarn.client.submission import (
    EVERY_LOG,
    AppRequest,
    admit_real_user,
    build_request,
)
from tony_core.schedulers.yarn.node import start
from tony_core.schedulers.yarn.resources import GPU, to_capability, to_resources

APP = ApplicationId.parse("application_1700000000000_0042")
FULL = job(
    role("ps", 2, memory=2048),
    role(
        instances=4, gpus=1, other={"fpga": 2}, node_label="gpu", docker=Docker("tf:2", ("/d:/d",))
    ),
    queue="ml",
    tags=("Vision", "nightly"),
    node_label="fast",
    master=MasterSpec(
        resources=Resources(1024, 2, 1, (("fpga", 1),)),
        node_label="gpu",
        max_attempts=3,
        docker=Docker("tony:1", ("/data:/data:ro",)),
    ),
    timeouts=Timeouts(application_s=3600.0, kill_grace_s=10.0),
    yarn=Yarn(priority=7, view_acl="ada,bob staff", modify_acl="*"),
)


def made(job: Job, *artifacts: Artifact, **visibility: str) -> AppRequest:
    return build_request(APP, job, (RUNTIME, *artifacts), "ada", visibility)


def sent(request: AppRequest) -> ApplicationSubmissionContext:
    """As it arrives."""
    message = request.to_message(Credentials(secrets={"tony.secret": b"hush"}))
    return ApplicationSubmissionContext.decode(message.encode())


def test_a_job_of_another_type_is_marked_by_a_tag() -> None:
    assert sent(made(job(tags=("Vision",)))).application_tags == ("vision",)
    assert sent(made(job(tags=("Vision",), type="SPEECH"))).application_tags == ("vision", "tony")
    assert sent(made(job(tags=("TonY",), type="SPEECH"))).application_tags == ("tony",)


def test_everything_that_a_dry_run_shows() -> None:
    assert made(FULL).describe(["tony.secret (32 bytes)"]) == {
        "application_id": "application_1700000000000_0042",
        "name": "mnist",
        "user": "ada",
        "queue": "ml",
        "type": "TONY",
        "tags": ["vision", "nightly"],
        "priority": 7,
        "cancel_tokens_when_complete": True,
        "max_attempts": 3,
        "attempt_failures_validity_s": 600,
        "keep_containers_across_attempts": True,
        "node_label": "fast",
        "lifetime_s": 3670,
        "view_acl": "ada,bob staff",
        "modify_acl": "*",
        "log_aggregation": {"include": ".*", "policy": "AllContainerLogAggregationPolicy"},
        "master": {
            "resources": {"memory-mb": 1024, "vcores": 2, "fpga": 1, "yarn.io/gpu": 1},
            "node_label": "gpu",
            "command": "export PATH; exec python3 -I -S tony-runtime yarn-start master"
            " --scheduler yarn 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr",
            "environment": {
                "YARN_CONTAINER_RUNTIME_TYPE": "docker",
                "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE": "tony:1",
                "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS": "/data:/data:ro",
            },
            "files": {
                "tony-runtime": {
                    "location": f"{ROOT}/store/objects/abc/runtime.tar",
                    "size": 700_000,
                    "timestamp_ms": 1_700_000_000_123,
                    "type": "ARCHIVE",
                    "visibility": "PRIVATE",
                }
            },
            "credentials": ["tony.secret (32 bytes)"],
        },
        "roles": {
            "ps": {
                "instances": 2,
                "resources": {"memory-mb": 2048, "vcores": 1},
                "node_label": "fast",
            },
            "worker": {
                "instances": 4,
                "resources": {"memory-mb": 1024, "vcores": 1, "fpga": 2, "yarn.io/gpu": 1},
                "node_label": "gpu",
                "environment": {
                    "YARN_CONTAINER_RUNTIME_TYPE": "docker",
                    "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE": "tf:2",
                    "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS": "/d:/d:rw",
                },
            },
        },
    }


def test_the_same_is_sent() -> None:
    context = sent(made(FULL))
    assert ApplicationId.from_message(context.application_id) == APP
    assert (context.application_name, context.queue) == ("mnist", "ml")
    assert (context.application_type, context.max_app_attempts) == ("TONY", 3)
    assert context.keep_containers_across_application_attempts
    assert context.attempt_failures_validity_interval == 600_000
    assert list(context.application_tags) == ["vision", "nightly"]
    assert context.priority.priority == 7
    assert context.node_label_expression == "fast"
    (timeout,) = context.application_timeouts
    assert (timeout.application_timeout_type, timeout.timeout) == (1, 3670)
    (wanted,) = context.am_container_resource_request
    assert (wanted.resource_name, wanted.num_containers, wanted.relax_locality) == ("*", 1, True)
    assert wanted.node_label_expression == "gpu"
    assert Capability.from_message(wanted.capability) == Capability(1024, 2, {GPU: 1, "fpga": 1})
    # Said in full: what is left out has a default here, and none at a ResourceManager.
    logs = context.log_aggregation_context
    assert logs.encode().startswith(b"\x0a\x02.*\x12\x00")
    assert logs.log_aggregation_policy_class_name.endswith(".AllContainerLogAggregationPolicy")
    spec = context.am_container_spec
    assert {one.access_type: one.acl for one in spec.application_acls} == {
        1: "ada,bob staff",
        2: "*",
    }
    assert Credentials.decode(spec.tokens).secrets == {"tony.secret": b"hush"}
    (file,) = spec.local_resources
    assert (file.key, file.value.size, file.value.timestamp) == (
        "tony-runtime",
        700_000,
        1_700_000_000_123,
    )
    assert context.log_aggregation_context.log_aggregation_policy_class_name.endswith(
        ".AllContainerLogAggregationPolicy"
    )


def test_an_ordinary_job_leaves_unset_values_to_the_cluster() -> None:
    context = sent(made(job()))
    assert not context.has("priority")
    assert context.node_label_expression == ""
    assert list(context.application_timeouts) == []
    (wanted,) = context.am_container_resource_request
    assert not wanted.has("node_label_expression")


def test_only_the_owner_sees_and_ends_it_by_default() -> None:
    request = made(job())
    assert (request.view_acl, request.modify_acl) == ("ada", "ada")


@pytest.mark.parametrize(
    ("named", "view"),
    [
        (None, "gateway"),
        ("bob", "bob,gateway"),
        ("bob,carl staff,ops", "bob,carl,gateway ops,staff"),
        (" staff", "gateway staff"),
        ("*", "*"),
        ("gateway,bob staff", "gateway,bob staff"),
    ],
)
def test_a_service_that_submits_for_a_user_may_look_and_not_end(
    named: Optional[str], view: str
) -> None:
    """NodeManagers take no doAs=."""
    gateway = act_for(ClusterIdentity("gateway", ScriptedLogin()), "ann")
    found = admit_real_user(job(yarn=Yarn(view_acl=named)), gateway)
    assert found.yarn == Yarn(view_acl=view)
    request = build_request(APP, found, (RUNTIME,), "ann", {})
    assert (request.view_acl, request.modify_acl) == (view, "ann")


def test_the_view_list_stays_where_no_login_acts_for_another_user() -> None:
    mine = job(yarn=Yarn(view_acl="bob"))
    for who in (
        ClusterIdentity("ann", ScriptedLogin()),
        ClusterIdentity("ann", tokens=Credentials()),
        act_for(ClusterIdentity("gateway"), "ann"),
    ):
        assert admit_real_user(mine, who) == mine


def test_the_masters_container_gets_what_it_needs_and_no_more() -> None:
    mine = artifact("mine.txt", roles=("am",))
    theirs = artifact("theirs.txt", roles=("worker",))
    everyones = artifact("venv", use=Use.VENV, kind=Kind.ARCHIVE)
    assert set(made(job(), mine, theirs, everyones).files) == {"tony-runtime", "mine.txt"}
    first = job(master=MasterSpec(preprocess="python prepare.py"))
    assert set(made(first, mine, theirs, everyones).files) == {"tony-runtime", "mine.txt", "venv"}


def test_the_masters_container_gets_a_file_under_each_of_its_names() -> None:
    uri = f"{ROOT}/store/objects/same/content"
    twice = made(job(), *(artifact(name, uri=uri, roles=("am",)) for name in ("one", "two")))
    assert set(twice.files) == {"tony-runtime", "one"}
    assert twice.secrets() == {start.ALIAS: start.pack({}, (), {"two": "one"})}
    assert twice.describe([])["master"]["links"] == {"two": "one"}
    assert made(job()).secrets() == {}


def test_without_our_own_code_nothing_is_built() -> None:
    with pytest.raises(SchedulerError, match="TonY's own code"):
        build_request(APP, job(), (artifact("a"),), "ada", {})


def test_the_json_of_the_web_server_has_the_same() -> None:
    plain = FULL.replace(master=MasterSpec(resources=Resources(1024, 2), node_label="gpu"))
    body = submission_body(made(plain), Credentials(secrets={"tony.secret": b"\xff\xfe"}))
    assert body["log-aggregation-context"] == {
        "log-include-pattern": ".*",
        "log-aggregation-policy-class-name": EVERY_LOG,
    }
    assert body["application-id"] == str(APP)
    assert body["resource"] == {"memory": 1024, "vCores": 2}
    assert body["application-tags"] == {"tag": ["vision", "nightly"]}
    assert body["application-timeouts"] == {"timeout": [{"type": "LIFETIME", "value": 3670}]}
    assert body["am-container-node-label-expression"] == "gpu"
    assert body["priority"] == 7
    spec = body["am-container-spec"]
    assert spec["credentials"]["secrets"] == {"entry": [{"key": "tony.secret", "value": "__4="}]}
    assert spec["application-acls"]["entry"][0] == {"key": "MODIFY_APP", "value": "*"}
    (file,) = spec["local-resources"]["entry"]
    assert file["value"]["type"] == "ARCHIVE"


@pytest.mark.parametrize(
    "python", ["python3", "/opt/my python/bin/python3", "$HOME/py", "a`b", 'c"d', "e\\f", "g'h"]
)
def test_the_command_survives_the_nodes_script(python: str) -> None:
    """The node runs ``bash -c "COMMAND"``."""
    command = made(job(runtime=Runtime(python=python))).command
    echoed = command.replace("exec ", "printf '%s\\n' ", 1).partition(" 1>")[0]
    script = f'bash -c "{echoed}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words == [
        python,
        *shlex.split("-I -S tony-runtime yarn-start master --scheduler yarn"),
    ]


@pytest.mark.parametrize(
    ("value", "plain"),
    [("", True), ("/a:/b:ro,/c:/d:rw", True), ('a"b', False), ("$X", False), ("{{X}}", False)],
)
def test_values_that_a_script_would_change_are_known(value: str, plain: bool) -> None:
    assert launch_script.is_plain(value) is plain


def test_no_image_no_variables() -> None:
    assert launch_script.docker_environment(None) == {}
    assert launch_script._DOCKER_MOUNTS not in launch_script.docker_environment(Docker("image"))


@pytest.mark.parametrize(
    "resources",
    [Resources(), Resources(64, 2, 3), Resources(64, 1, 0, (("fpga", 2), ("yarn.io/nic", 1)))],
)
def test_amounts_come_back_as_they_were_asked(resources: Any) -> None:
    assert to_resources(to_capability(resources)) == resources
