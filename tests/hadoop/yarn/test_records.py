"""What YARN says, as values; URLs, tokens and errors."""

from __future__ import annotations

from typing import Optional

import pytest

from tony_core.hadoop.errors import (
    AlreadyRegistered,
    ApplicationNotFound,
    AttemptNotFound,
    InvalidRequest,
    InvalidToken,
    NotRegistered,
    Remedy,
    RemoteError,
    Standby,
    remote_error,
)
from tony_core.hadoop.site import urls
from tony_core.hadoop.tokens import AM_RM, CONTAINER, NM, Token, attempt_of, claim_of, node_of
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.launch import PRIVATE, Launch, LocalFile
from tony_core.hadoop.yarn.messages import yarn
from tony_core.hadoop.yarn.messages.reports import ApplicationReport
from tony_core.hadoop.yarn.records import (
    APPLICATION_STATES,
    AppReport,
    Capability,
    name_of,
    number_of,
)

APP = ApplicationId(1700000000000, 42)
ATTEMPT = AttemptId(APP, 1)
HERE = ContainerId(ATTEMPT, 3)


class TestCapabilities:
    @pytest.mark.parametrize(
        ("value", "units", "base"),
        [
            (4, "", 4),
            (2, "k", 2000),
            (2, "Ki", 2048),
            (1, "Gi", 1 << 30),
            (2500, "m", 2),
            (3, "?", 3),
        ],
    )
    def test_units(self, value: int, units: str, base: int) -> None:
        item = yarn.ResourceInformation(key="x", value=value, units=units)
        assert Capability.from_message(yarn.Resource(resource_value_map=[item])).other == {
            "x": base
        }

    def test_round_trip(self) -> None:
        one = Capability(1024, 2, {"yarn.io/gpu": 1})
        assert Capability.from_message(yarn.Resource.decode(one.to_message().encode())) == one

    def test_what_is_lacking(self) -> None:
        room = Capability(1024, 8)
        assert Capability(1024, 8).lacking(room) == {}
        assert Capability(2048, 1, {"yarn.io/gpu": 2}).lacking(room) == {
            "memory-mb": (2048, 1024),
            "yarn.io/gpu": (2, 0),
        }


class TestStates:
    def test_names(self) -> None:
        assert name_of(APPLICATION_STATES, 5) == "RUNNING"
        assert name_of(APPLICATION_STATES, 99) == "99"
        assert number_of(APPLICATION_STATES, "running") == 5
        with pytest.raises(ValueError, match="'GONE' is none of NEW,"):
            number_of(APPLICATION_STATES, "GONE")

    def test_an_application_that_has_hardly_begun(self) -> None:
        report = AppReport.from_message(
            ApplicationReport(application_id=APP.to_message(), launch_time=-1, tracking_url="N/A")
        )
        assert report.id == APP
        assert (report.launched, report.tracking_url, report.diagnostics) == (0.0, "", "")
        assert report.attempt is None
        assert report.am_rm_token is None
        assert report.may_view

    @pytest.mark.parametrize(("diagnostics", "may_view"), [("N/A", False), ("", True), ("x", True)])
    def test_whether_the_caller_may_view_it(self, diagnostics: str, may_view: bool) -> None:
        sent = ApplicationReport(application_id=APP.to_message(), diagnostics=diagnostics)
        assert AppReport.from_message(sent).may_view is may_view


class TestUrls:
    @pytest.mark.parametrize(
        "location",
        [
            "hdfs://nn.example:8020/user/a/x.zip",
            "hdfs://Prod/user/a/b%20c.zip",
            "file:///tmp/x",
            "s3a://bucket/key",
        ],
    )
    def test_files(self, location: str) -> None:
        assert urls.location_of(urls.url_message(location)) == location

    def test_a_name_service_has_no_port(self) -> None:
        message = urls.url_message("hdfs://Prod/a b")
        assert (message.host, message.port, message.file) == ("Prod", -1, "/a b")

    def test_a_path_is_none(self) -> None:
        with pytest.raises(ValueError, match="names no file system"):
            urls.url_message("/tmp/x")

    def test_pages(self) -> None:
        assert urls.proxied("http://rm:8088", APP) == (
            "http://rm:8088/proxy/application_1700000000000_0042/"
        )
        assert urls.container_logs("http://nm:8042", HERE, "a/b").endswith("_000003/a%2Fb")


class TestTokens:
    def test_whose_they_are(self) -> None:
        node = NodeId("h", 1)
        am = yarn.AMRMTokenIdentifier(app_attempt_id=ATTEMPT.to_message(), key_id=1).encode()
        nm = yarn.NMTokenIdentifier(app_attempt_id=ATTEMPT.to_message(), node_id=node.to_message())
        assert attempt_of(Token(am, b"", AM_RM)) == ATTEMPT
        assert attempt_of(Token(nm.encode(), b"", NM)) == ATTEMPT
        assert node_of(Token(nm.encode(), b"", NM)) == node
        assert attempt_of(Token(b"?", b"", "other")) is None

    def test_what_a_container_may(self) -> None:
        identifier = yarn.ContainerTokenIdentifier(
            container_id=HERE.to_message(),
            nm_host_addr="h:1",
            resource=Capability(64, 1).to_message(),
            expiry_time_stamp=5000,
        )
        claim = claim_of(Token(identifier.encode(), b"", CONTAINER))
        assert (claim.container, claim.node, claim.memory_mb, claim.expires) == (
            HERE,
            "h:1",
            64,
            5.0,
        )
        with pytest.raises(ValueError, match="no token of a container"):
            claim_of(Token(b"", b"", NM))


class TestLaunches:
    def test_all_of_it(self) -> None:
        launch = Launch(
            ("run",),
            {"B": "2", "A": "1"},
            {"x": LocalFile("hdfs://nn/x.zip", 5, 7, archive=True, visibility=PRIVATE)},
            view_acl="alice",
        )
        message = yarn.ContainerLaunchContext.decode(launch.to_message().encode())
        assert [(e.key, e.value) for e in message.environment] == [("A", "1"), ("B", "2")]
        (file,) = message.local_resources
        assert (file.key, file.value.size, file.value.timestamp) == ("x", 5, 7)
        assert (file.value.type, file.value.visibility) == (1, 2)
        assert [(a.access_type, a.acl) for a in message.application_acls] == [(1, "alice")]
        assert message.tokens.startswith(b"HDTS\0")


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "kind", "remedy"),
        [
            ("yarn.exceptions.ApplicationNotFoundException", ApplicationNotFound, None),
            (
                "yarn.exceptions.ApplicationAttemptNotFoundException",
                AttemptNotFound,
                None,
            ),
            (
                "yarn.exceptions.ApplicationMasterNotRegisteredException",
                NotRegistered,
                None,
            ),
            ("yarn.exceptions.InvalidResourceRequestException", InvalidRequest, None),
            ("security.token.SecretManager$InvalidToken", InvalidToken, None),
            ("ipc.StandbyException", Standby, Remedy.FAILOVER),
            ("something.New", RemoteError, None),
        ],
    )
    def test_the_table(self, name: str, kind: type, remedy: Optional[Remedy]) -> None:
        error = remote_error(f"org.apache.hadoop.{name}", "why")
        assert type(error) is kind
        assert error.remedy is (remedy or Remedy.NONE)

    def test_only_the_master_that_has_registered_has_registered(self) -> None:
        name = "org.apache.hadoop.yarn.exceptions.InvalidApplicationMasterRequestException"
        again = remote_error(name, "Application Master is already registered : app")
        assert type(again) is AlreadyRegistered
        assert type(remote_error(name, "Invalid progress")) is RemoteError

    def test_words(self) -> None:
        name = "org.apache.hadoop.ipc.StandbyException"
        error = remote_error(name, f"{name}: no\n\tat X", method="m", server="h:1")
        assert str(error) == "h:1 answered to m: no (StandbyException)"
        assert str(remote_error(name, name)) == "no reason given (StandbyException)"
