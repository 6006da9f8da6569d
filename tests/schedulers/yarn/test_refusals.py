"""What ResourceManagers of 3.3 and 3.4 have said, and what we make of it."""

from __future__ import annotations

import pytest

from tony_core.hadoop.errors import (
    ApplicationNotFound,
    ConfigurationError,
    HadoopError,
    Unreachable,
    remote_error,
)
from tony_core.schedulers.port import LastingRefusal, NoSuchApplication, SchedulerError
from tony_core.schedulers.yarn.refusals import explain_refusal, refused_submission, translate_error

APP = "application_1700000000000_0042"
ROLE_KEYS = (
    "tony.<role>.placement-spec, tony.containers.placement-spec and tony.<role>.allocation-tags"
)
NO_CONSTRAINTS = (
    "the cluster takes no placement constraints: its administrator can set"
    " yarn.resourcemanager.placement-constraints.handler, or the job leaves out"
    f" {ROLE_KEYS}"
)
_EXCEPTION = "org.apache.hadoop.security.AccessControlException: "


@pytest.mark.parametrize(
    ("message", "means"),
    [
        (
            f"Application {APP} submitted by user ada to unknown queue: nowhere",
            "there is no queue nowhere; name one by tony.yarn.queue",
        ),
        (
            f"Application {APP} submitted by user : ada to non-leaf queue : ml",
            "ml is not a leaf queue; name one of its children (tony.yarn.queue)",
        ),
        (
            f"{_EXCEPTION}Queue root.closed is STOPPED. Cannot accept submission of application:"
            f" {APP}",
            "the queue root.closed is stopped and takes no applications",
        ),
        (
            f"{_EXCEPTION}Queue root.tiny already has 2 applications, cannot accept submission of"
            f" application: {APP}",
            "the queue root.tiny holds 2 applications already, and takes no more; submit again when"
            " one has ended",
        ),
        (
            f"Queue root.tiny already has 3 applications from user ada cannot accept submission of"
            f" application: {APP}",
            "ada has 3 applications in the queue root.tiny already, and may have no more; submit"
            " again when one has ended",
        ),
        (
            "Failed to renew token: Kind: HDFS_DELEGATION_TOKEN, Service: 10.0.0.1:8020, Ident:"
            " (token for ada: HDFS_DELEGATION_TOKEN owner=ada@REALM, renewer=oozie, realUser=,"
            " issueDate=1795454336712, maxDate=1796059136712, sequenceNumber=11, masterKeyId=2)",
            "it cannot renew the HDFS_DELEGATION_TOKEN for 10.0.0.1:8020, whose renewer is oozie."
            " Obtain one whose renewer is the ResourceManager (yarn.resourcemanager.principal), or"
            " one without a renewer",
        ),
        (
            f"{_EXCEPTION}User ada does not have permission to submit {APP} to queue private",
            "ada may not submit to the queue private (its ACL does not allow it)",
        ),
        (
            "Invalid resource request! Cannot allocate containers as requested resource is greater"
            " than maximum allowed allocation. Requested resource type=[memory-mb], Requested"
            " resource=<memory:9000, vCores:1>, maximum allowed allocation=<memory:8192, vCores:32,"
            " yarn.io/gpu: 4>, please note that maximum allowed allocation is calculated by"
            " scheduler based on maximum resource of registered NodeManagers",
            "the master requests <memory:9000, vCores:1>, more than the cluster's maximum"
            " allocation <memory:8192, vCores:32, yarn.io/gpu: 4> (exceeded: memory-mb)",
        ),
        (
            "User: gateway/host@EXAMPLE is not allowed to impersonate ann",
            "gateway/host@EXAMPLE is not allowed to act for ann (HADOOP_PROXY_USER, --proxy-user):"
            " an administrator can allow it by hadoop.proxyuser.gateway.{hosts,groups,users} in the"
            " servers' core-site.xml",
        ),
        (
            "Unauthorized connection for super-user: gateway@EXAMPLE from IP /10.0.0.1",
            "gateway@EXAMPLE is not allowed to act for others from 10.0.0.1 (HADOOP_PROXY_USER,"
            " --proxy-user): an administrator can allow it by hadoop.proxyuser.gateway.hosts in the"
            " servers' core-site.xml",
        ),
        (
            f"java.security.AccessControlException: User mallory cannot perform operation"
            f" MODIFY_APP on {APP}",
            f"mallory may not end {APP}, which belongs to another user. Its owner may, the users"
            " and groups of its tony.yarn.acl.modify, and the administrators of the queue and the"
            " cluster",
        ),
        (
            f"java.security.AccessControlException: User mallory cannot perform operation"
            f" VIEW_APP on {APP}",
            f"mallory may not look at {APP}, which belongs to another user. Its owner may, the"
            " users and groups of its tony.yarn.acl.view, and the administrators of the queue and"
            " the cluster",
        ),
        (
            "Found non empty SchedulingRequest in AllocateRequest for"
            " application=appattempt_1700000000000_0042_000001, but the configured"
            " yarn.resourcemanager.placement-constraints.handler cannot handle placement"
            " constraints. Rejecting this allocate operation",
            NO_CONSTRAINTS,
        ),
        (
            "Found non empty placement constraints map in RegisterApplicationMasterRequest for"
            " application=appattempt_1700000000000_0042_000001, but the configured"
            " yarn.resourcemanager.placement-constraints.handler cannot handle placement"
            " constraints. Rejecting this registerApplicationMaster operation",
            NO_CONSTRAINTS.replace(ROLE_KEYS, "tony.application.placement-spec"),
        ),
        (
            "Found non empty SchedulingRequest of AllocateRequest for"
            " application=appattempt_1700000000000_0042_000001, however the configured"
            " scheduler=org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"
            " cannot handle placement constraints, rejecting this allocate operation",
            NO_CONSTRAINTS,
        ),
        (
            "SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]",
            "the cluster asks for Kerberos, and the configuration read here does not: name the"
            " cluster's own by HADOOP_CONF_DIR, or set hadoop.security.authentication to kerberos"
            " in its core-site.xml",
        ),
        (
            "User eve@SANDBOX.EXAMPLE (auth:KERBEROS) is not authorized for protocol interface"
            " org.apache.hadoop.yarn.api.ApplicationClientProtocolPB: denied by configured ACL",
            "eve@SANDBOX.EXAMPLE may not call the cluster at all: ask its administrator for the"
            " right (hadoop-policy.xml, the list for ApplicationClientProtocolPB)",
        ),
        ("org.apache.hadoop.yarn.SomeException: a new reason", "a new reason"),
        ("AM container  is\nlaunched", "AM container is launched"),
        ("", "it gave no reason"),
    ],
)
def test_reasons(message: str, means: str) -> None:
    assert explain_refusal(message) == means


def test_the_application_is_named() -> None:
    assert str(refused_submission(APP, "unknown queue: x")).startswith(
        f"the cluster refused {APP}: there is"
    )


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("unknown queue: x", LastingRefusal),
        ("Queue root.ml is STOPPED. Cannot accept submission", SchedulerError),
        ("Queue root.ml already has 3\n applications, cannot accept", SchedulerError),
        ("an unknown refusal", SchedulerError),
    ],
)
def test_refusals_that_waiting_mends_are_distinguished(message: str, kind: type) -> None:
    assert type(refused_submission(APP, message)) is kind


@pytest.mark.parametrize(
    ("error", "kind", "means"),
    [
        (
            ApplicationNotFound("ApplicationNotFoundException", "no"),
            NoSuchApplication,
            f"{APP}: the ResourceManager does not know it, or no longer",
        ),
        (Unreachable("rm:8032: connection refused"), SchedulerError, "rm:8032: connection refused"),
        (ConfigurationError("no HDFS"), LastingRefusal, "no HDFS"),
        (
            remote_error("org.apache.hadoop.yarn.exceptions.YarnException", "whatever it was"),
            SchedulerError,
            f"{APP} was refused: whatever it was (YarnException)",
        ),
        (
            remote_error("YarnException", "unknown queue: x"),
            LastingRefusal,
            f"{APP} was refused: there is no queue x; name one by tony.yarn.queue",
        ),
        (HadoopError("something else"), SchedulerError, f"{APP}: something else"),
    ],
)
def test_errors(error: HadoopError, kind: type, means: str) -> None:
    found = translate_error(error, APP)
    assert type(found) is kind
    assert str(found) == means
