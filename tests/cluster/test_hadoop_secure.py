"""The secure cluster is secure: seen from outside, on the real thing, without TonY's own way in."""

from __future__ import annotations

import calendar
import http.client
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.security import FIRST_UID, SHORT_TICKET_S, TOKEN_RENEW_S
from tests.cluster.hadoop.web import WebError, WebHdfs, call, request
from tests.cluster.test_hadoop_base import eventually, submit
from tests.cluster.test_hadoop_features import protections
from tests.second_user import needs_root

pytestmark = pytest.mark.cluster

EVERYTHING = ("secure", "nn_ha", "rm_ha", "nm_recovery", "log_aggregation", "queues", "gpu")
SHORT = ("secure", "short_tickets", "short_tokens", "privacy")


PROTOCOL = b"org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"


def answer_to_a_name(address: str, user: str) -> bytes:
    """What a server answers to a client that gives a name and proves nothing (SIMPLE)."""
    host, port = address.rsplit(":", 1)

    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    header = b"\x08\x02\x10\x00\x18\x05" + field(4, bytes(16)) + b"\x28\x01"  # call -3, retry -1
    context = field(2, field(1, user.encode())) + field(3, PROTOCOL)
    packet = b"".join(struct.pack("B", len(part)) + part for part in (header, context))
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"hrpc\x09\x00\x00" + struct.pack(">I", len(packet)) + packet)
        with connection.makefile("rb") as answer:
            (length,) = struct.unpack(">I", answer.read(4))
            return answer.read(length)


def as_other(files: WebHdfs, user: str) -> Dict[str, Any]:
    """The home folder of a user for whom another one asks."""
    url = f"{files.url}/webhdfs/v1/?op=GETHOMEDIRECTORY&doas={user}"
    return dict(call("GET", url, by=files.by))


def expiry(cluster: Hadoop, user: str) -> Tuple[float, str]:
    """When a user's ticket ends, and what klist says of it."""
    text = subprocess.run(
        ["klist", "-f"],
        env={**os.environ, **cluster.kerberos.environment_of(user), "LC_ALL": "C", "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.findall(r"\d\d/\d\d/\d\d(?:\d\d)? \d\d:\d\d:\d\d", text)
    shape = "%m/%d/%y %H:%M:%S" if len(found[1]) == 17 else "%m/%d/%Y %H:%M:%S"
    return calendar.timegm(time.strptime(found[1], shape)), text


class TestCalls:
    def test_a_name_without_proof_is_refused(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        for address in (cluster.rm_address, cluster.rpc("nn0")):
            answer = answer_to_a_name(address, "ann")
            assert b"SIMPLE authentication is not enabled" in answer, answer

    def test_a_ticket_or_a_token_is_asked_for(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        for address in (cluster.rm_address, cluster.rpc("nn0")):
            offered = protections(address)
            assert b"KERBEROS" in offered and b"GSSAPI" in offered and b"TOKEN" in offered
            assert b'qop="auth,auth-conf"' in offered

    @pytest.mark.nightly
    def test_a_protection_may_be_demanded(self, hadoop: GetHadoop) -> None:
        assert b'qop="auth-conf"' in protections(hadoop(*SHORT).rm_address)


class TestWebServers:
    def test_each_asks_for_a_ticket(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        for daemon in ("nn0", "dn0", "rm0", "nm0", "nm1"):
            for query in ("", "?user.name=admin"):
                status, headers, _ = request("GET", f"{cluster.url(daemon)}/jmx{query}")
                assert (status, headers.get("WWW-Authenticate")) == (401, "Negotiate"), daemon
            beans = call("GET", f"{cluster.url(daemon)}/jmx", by=cluster.caller("bob"))["beans"]
            assert beans, daemon

    def test_curl_gets_in_with_a_ticket(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        url = f"{cluster.webhdfs_url}/webhdfs/v1/?op=GETHOMEDIRECTORY"
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--negotiate", "--user", ":", url],
            env={**os.environ, **cluster.environment_of("bob")},
            capture_output=True,
            text=True,
        )
        assert json.loads(done.stdout) == {"Path": "/user/bob"}, done


class TestUsers:
    def test_files_of_one_are_closed_to_another(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        ann, bob = cluster.hdfs_of("ann"), cluster.hdfs_of("bob")
        bob.put("/user/bob/letter", b"to bob")
        assert bob.get("/user/bob/letter") == b"to bob"
        assert bob.status("/user/bob/letter")["owner"] == "bob"
        with pytest.raises(WebError, match="Permission denied: user=ann") as caught:
            ann.get("/user/bob/letter")
        assert caught.value.status == 403

    def test_applications_of_one_are_closed_to_another(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        app = submit(cluster, "sleep 300", user="ann")
        cluster.wait_for(app, ["ACCEPTED"])
        assert cluster.application(app)["user"] == "ann"
        url = f"{cluster.rm_url}/ws/v1/cluster/apps/{app}/state"
        with pytest.raises(WebError) as caught:
            call("PUT", url, {"state": "KILLED"}, by=cluster.caller("bob"))
        assert caught.value.status == 403
        seen = call("GET", f"{cluster.rm_url}/ws/v1/cluster/apps", by=cluster.caller("bob"))
        assert "amContainerLogs" not in {
            key for one in seen["apps"]["app"] if one["id"] == app for key in one
        }
        call("PUT", url, {"state": "KILLED"}, by=cluster.caller("ann"))
        cluster.wait_for(app, ["KILLED"])

    def test_one_may_act_for_the_others(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        gateway = cluster.hdfs_of("gateway")
        assert as_other(gateway, "ann") == {"Path": "/user/ann"}
        with pytest.raises(WebError, match="not allowed to impersonate admin"):
            as_other(gateway, "admin")
        with pytest.raises(WebError, match="not allowed to impersonate bob"):
            as_other(cluster.hdfs_of("ann"), "bob")

    def test_one_may_call_no_service(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        shell = "org.apache.hadoop.fs.FsShell"
        assert "/user" in cluster.tool(shell, "-ls", "/", user="bob")
        output = cluster.tool(shell, "-ls", "/", user="eve", check=False)
        assert f"User eve@{REALM}" in output and "is not authorized for protocol" in output

    def test_an_application_runs_and_its_logs_can_be_read(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        app = submit(cluster, "echo runs for $USER; exit 3")
        assert "exitCode: 3" in cluster.wait_for(app)["diagnostics"]
        assert "runs for ann" in cluster.application_logs(app)


def submit_with_token(cluster: Hadoop, command: str, user: str) -> str:
    """An application whose containers may read and write HDFS as the user."""
    spec = {
        "commands": {"command": f"({command}) 1><LOG_DIR>/stdout 2>&1"},
        "credentials": {"tokens": {"entry": [{"key": "hdfs", "value": cluster.hdfs_token(user)}]}},
    }
    return submit(cluster, command, user=user, am_container_spec=spec)


class TestLogs:
    def test_those_that_are_running_are_shown_to_their_owner(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        app = submit(cluster, "echo once; sleep 300")
        cluster.wait_for(app, ["ACCEPTED"])
        assert eventually(lambda: "once" in cluster.application_logs(app))
        (path,) = cluster.folder.glob(f"data/nm*/logs/{app}/*/stdout")
        node, container = path.parts[-5], path.parent.name
        url = f"{cluster.url(node)}/ws/v1/node/containers/{container}/logs/stdout"
        shown = cluster.caller("ann").request("GET", url, None, {}, 10)
        assert shown[0] == 200 and b"once" in shown[2], shown
        refused = cluster.caller("bob").request("GET", url, None, {}, 10)
        assert b"once" not in refused[2], refused
        cluster.kill_application(app)

    def test_they_move_into_hdfs(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure", "log_aggregation")
        app = submit_with_token(cluster, "echo to be kept", "ann")
        cluster.wait_for(app)

        def moved() -> bool:
            return cluster.application(app).get("logAggregationStatus") == "SUCCEEDED"

        assert eventually(moved, 40), cluster.application(app)
        assert not list(cluster.folder.glob(f"data/nm*/logs/{app}"))
        assert "to be kept" in cluster.application_logs(app)
        assert cluster.hdfs_of("ann").list("/app-logs/ann")
        with pytest.raises(WebError, match="Permission denied"):
            cluster.hdfs_of("bob").list("/app-logs/ann")


@pytest.mark.nightly
def test_web_servers_may_be_left_open(hadoop: GetHadoop) -> None:
    cluster = hadoop("secure", "simple_web")
    for daemon in ("nn0", "rm0", "nm1"):
        assert request("GET", f"{cluster.url(daemon)}/jmx")[0] == 200
    home = f"{cluster.webhdfs_url}/webhdfs/v1/?op=GETHOMEDIRECTORY"
    status, headers, text = request("GET", home)
    assert status == 403 and "WWW-Authenticate" not in headers
    assert b"user not authenticated by filter" in text
    assert request("GET", f"{home}&user.name=ann")[0] == 200
    url = f"{cluster.rm_url}/ws/v1/cluster/apps/new-application?user.name=ann"
    with pytest.raises(WebError, match="default static user cannot"):
        call("POST", url)
    assert b"SIMPLE authentication is not" in answer_to_a_name(cluster.rm_address, "ann")
    assert hadoop("secure", "simple_web") is cluster


@pytest.mark.nightly
def test_tokens_may_name_hosts(hadoop: GetHadoop) -> None:
    cluster = hadoop("secure", "host_tokens", "log_aggregation")
    app = submit_with_token(cluster, "true", "ann")
    # The ResourceManager renews tokens at a submit, and NodeManagers write logs with them.
    assert "exitCode: 0" in cluster.wait_for(app)["diagnostics"]
    assert eventually(
        lambda: cluster.application(app).get("logAggregationStatus") == "SUCCEEDED", 40
    )


@pytest.mark.nightly
@needs_root
class TestOwnUids:
    FEATURES = ("secure", "linux_executor", "log_aggregation", "nm_recovery")

    def test_a_container_is_its_users(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*self.FEATURES)
        for user in ("ann", "bob"):
            command = "id -u; umask; stat -c '%a %u' $HADOOP_TOKEN_FILE_LOCATION; env"
            app = submit_with_token(cluster, f"{command}; exit 7", user)
            assert "exitCode: 7" in cluster.wait_for(app)["diagnostics"]
            assert eventually(
                lambda app=app: cluster.application(app).get("logAggregationStatus") == "SUCCEEDED",
                40,
            )
            logs = cluster.application_logs(app)
            uid = FIRST_UID + ("ann", "bob").index(user)
            assert f"{uid}\n0027\n600 {uid}\n" in logs, logs
            assert "NSS_WRAPPER" not in logs
            assert cluster.hdfs_of(user).list(f"/app-logs/{user}")
        with pytest.raises(WebError, match="Permission denied"):
            cluster.hdfs_of("ann").list("/app-logs/bob")

    def test_files_are_localized_and_a_kill_leaves_nothing(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*self.FEATURES)
        cluster.hdfs_of("bob").put("/user/bob/input", b"of bob")
        status = cluster.hdfs_of("bob").status("/user/bob/input")
        resource = {
            "resource": f"{cluster.default_fs}/user/bob/input",
            "type": "FILE",
            "visibility": "PRIVATE",
            "size": status["length"],
            "timestamp": status["modificationTime"],
        }
        spec = {
            "commands": {
                "command": "(cat input; stat -Lc ' %u' input; sleep 300) 1><LOG_DIR>/stdout 2>&1"
            },
            "local-resources": {"entry": [{"key": "input", "value": resource}]},
            "credentials": {
                "tokens": {"entry": [{"key": "hdfs", "value": cluster.hdfs_token("bob")}]}
            },
        }
        app = submit(cluster, "", user="bob", am_container_spec=spec)
        wanted = f"of bob {FIRST_UID + 1}"
        assert eventually(lambda: wanted in cluster.application_logs(app), 40), (
            cluster.application(app),
            cluster.application_logs(app),
        )
        (container,) = cluster.folder.glob(f"data/nm*/logs/{app}/*")
        node = container.parts[-4]
        url = f"{cluster.url(node)}/ws/v1/node/containers/{container.name}/logs/stdout"
        shown = cluster.caller("bob").request("GET", url, None, {}, 10)
        assert shown[0] == 200 and b"of bob" in shown[2], shown
        cluster.restart_nm(int(node[2:]))
        assert cluster.application(app)["state"] == "ACCEPTED"
        assert supervisor.processes_in(cluster.folder / "data" / node / "local")
        cluster.kill_application(app)
        assert eventually(
            lambda: not supervisor.processes_in(cluster.folder / "data" / node / "local")
        )
        left = cluster.folder / "data" / node / "local" / "usercache" / "bob" / "appcache" / app
        assert eventually(lambda: not left.exists(), 20)


class TestKerberos:
    def test_keys_are_for_their_owner_only(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        cluster.environment_of("ann")
        folder = cluster.kerberos.folder
        data = cluster.folder / "data" / "kdc"
        found = [folder / "passwords", folder / "http-secret", data / "principal", data / "stash"]
        for name in ("keytabs", "tickets"):
            found += (folder / name).iterdir()
        assert {path.name for path in found} >= {"ann", "bob", "gateway", "nn", "dn", "rm", "nm"}
        assert {oct(path.stat().st_mode & 0o777) for path in found} == {"0o600"}

    def test_its_server_can_be_taken_down(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        cluster.stop("kdc")
        with pytest.raises(SandboxError, match="Cannot contact any KDC"):
            cluster.kinit("bob")
        # Who has a cookie is still let in.
        assert cluster.nodes()
        cluster.start("kdc")
        assert eventually(lambda: _can_log_in(cluster))
        cluster.kill("kdc")
        assert hadoop("secure") is cluster
        assert cluster.daemons()["kdc"]["pid"]
        assert eventually(lambda: _can_log_in(cluster))

    def test_a_ticket_may_be_short(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        cluster.kinit("bob", "5m", "20m")
        ends, text = expiry(cluster, "bob")
        assert 200 < ends - time.time() <= 300, text
        assert "renew until" in text
        # Another test gets one that lasts.
        assert hadoop("secure").environment_of("bob") == cluster.environment_of("bob")
        assert expiry(cluster, "bob")[0] - time.time() > 3600

    def test_a_password_is_as_good_as_a_keytab(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        lines = (cluster.kerberos.folder / "passwords").read_text().splitlines()
        password = dict(line.split() for line in lines)["bob"]
        done = subprocess.run(
            ["kinit", f"bob@{REALM}"],
            env={**os.environ, **cluster.kerberos.environment_of("bob")},
            input=f"{password}\n",
            text=True,
            capture_output=True,
        )
        assert done.returncode == 0, done

    def test_it_listens_on_loopback_only(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("secure")
        pid = cluster.daemons()["kdc"]["pid"]
        sockets = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        inodes = {name[8:-1] for name in sockets if name.startswith("socket:[")}
        bound: List[str] = []
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                if line.split()[9] in inodes:
                    bound.append(f"{table} {line.split()[1].split(':')[0]}")
        assert bound == ["tcp 0100007F"]


def _can_log_in(cluster: Hadoop) -> bool:
    try:
        cluster.kinit("bob")
    except SandboxError:
        return False
    return True


@pytest.mark.nightly
class TestLifetimes:
    def test_tickets_are_short_and_can_be_renewed(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SHORT)
        cluster.kinit("ann", "1h", "1h")
        ends, text = expiry(cluster, "ann")
        assert 0 < ends - time.time() <= SHORT_TICKET_S, text
        assert "Flags: F" in text and "R" in text.split("Flags:")[1].split("\n")[0]

    def test_daemons_outlive_their_tickets(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SHORT)
        time.sleep(SHORT_TICKET_S + 20)
        cluster.wait_ready(20)
        cluster.stop("rm0")
        cluster.start("rm0")
        cluster.wait_ready(40)

    def test_tokens_are_to_be_renewed_soon(self, hadoop: GetHadoop) -> None:
        cluster = hadoop(*SHORT)
        ann = cluster.hdfs_of("ann")
        url = f"{ann.url}/webhdfs/v1/?op="
        found = call("GET", f"{url}GETDELEGATIONTOKEN&renewer=ann", by=ann.by)
        token = found["Token"]["urlString"]
        renewed = call("PUT", f"{url}RENEWDELEGATIONTOKEN&token={token}", by=ann.by)["long"]
        assert 0 < renewed / 1000 - time.time() <= TOKEN_RENEW_S


@pytest.mark.nightly
@pytest.mark.parametrize("features", [("https",), ("secure", "https", "nn_ha", "rm_ha")])
def test_web_servers_may_speak_https_only(hadoop: GetHadoop, features: Tuple[str, ...]) -> None:
    cluster = hadoop(*features)
    assert cluster.default_fs and cluster.rm_url.startswith("https://localhost:")
    files = cluster.hdfs
    files.put("/over/tls", b"content")
    assert files.get("/over/tls") == b"content"
    for daemon in ("nn0", "dn0", "nm0"):
        url = cluster.url(daemon)
        assert url.startswith("https://")
        with pytest.raises(ssl.SSLCertVerificationError):
            request("GET", f"{url}/jmx")
        with pytest.raises((OSError, http.client.HTTPException)):
            request("GET", f"{url.replace('https', 'http')}/jmx", timeout=5)
        assert call("GET", f"{url}/jmx", by=cluster.admin)["beans"]
    url = f"{files.url}/webhdfs/v1/?op=LISTSTATUS&user.name=ann"
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--fail", "--negotiate", "--user", ":", url],
        env={**os.environ, **cluster.environment_of("ann")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done


@pytest.mark.nightly
def test_it_goes_with_everything_else(hadoop: GetHadoop) -> None:
    cluster = hadoop(*EVERYTHING)
    cluster.hdfs_of("ann").put("/user/ann/file", b"x")
    cluster.fail_over_hdfs()
    assert cluster.hdfs_of("ann").get("/user/ann/file") == b"x"
    app = submit(cluster, "sleep 300", queue="train")
    cluster.wait_for(app, ["ACCEPTED"])
    killed = cluster.kill_active_rm()

    def other() -> bool:
        try:
            return cluster.active_rm() != killed
        except SandboxError:
            return False

    assert eventually(other, 60)
    assert cluster.application(app)["user"] == "ann"
    cluster.kill_application(app)
