"""tony doctor and a login: with a real KDC, and on a real secure cluster, well and unwell."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Dict, List

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.kdc import Kdc, free_port
from tests.cluster.yarn.jobs import Tony
from tests.hadoop.kerberos.handshakes import ScriptedLogin
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.identity import ClusterIdentity, cluster_identity, identity_by_login
from tony_core.hadoop.kerberos.login import Login
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.schedulers.port import CheckResult, Finding
from tony_core.schedulers.yarn.client.doctor_login import (
    examine_certificate,
    examine_login,
    examine_long_jobs,
)
from tony_core.schedulers.yarn.client.next_master import PRIVILEGES

OK, NOTE, WRONG = CheckResult.OK, CheckResult.NOTE, CheckResult.WRONG


def site(**more: str) -> SiteConfiguration:
    values = {
        "hadoop.security.authentication": "kerberos",
        "fs.defaultFS": "hdfs://localhost:8020",
        "yarn.resourcemanager.hostname": "localhost",
        "yarn.resourcemanager.principal": f"rm/_HOST@{REALM}",
        "dfs.namenode.kerberos.principal": f"nn/_HOST@{REALM}",
    }
    return SiteConfiguration.of({**values, **more})


def found(login: Login, conf: SiteConfiguration) -> List[Finding]:
    return list(examine_login(conf, identity_by_login(conf, login)))


def test_nothing_on_an_open_cluster() -> None:
    assert list(examine_login(SiteConfiguration.of({}), ClusterIdentity("ann"))) == []


def test_tokens() -> None:
    held = Credentials({"a": Token(b"i", b"secret", HDFS_DELEGATION, "127.0.0.1:8020")})
    (finding,) = examine_login(site(), ClusterIdentity("ann", tokens=held))
    assert finding.verdict is OK
    assert "ann, by the tokens of HADOOP_TOKEN_FILE_LOCATION" in finding.detail
    assert "HDFS_DELEGATION_TOKEN for 127.0.0.1:8020" in finding.detail
    assert "secret" not in finding.detail


def test_jobs_that_outlive_their_tokens() -> None:
    ann = ClusterIdentity("ann", login=ScriptedLogin())
    (lost,) = examine_long_jobs(site(**{"yarn.log-aggregation-enable": "true"}), ann)
    assert lost.verdict is NOTE
    assert lost.detail.startswith("after the first 7 days they have no next master if")
    assert "no logs in HDFS" in lost.detail and PRIVILEGES in lost.advice
    (kept,) = examine_long_jobs(site(**{PRIVILEGES: "true"}), ann)
    assert kept.verdict is OK and PRIVILEGES in kept.detail
    assert list(examine_long_jobs(SiteConfiguration.of({}), ClusterIdentity("ann"))) == []


@pytest.mark.cluster
class TestTheKdc:
    def test_all_is_well(self, kdc: Kdc) -> None:
        login = Login.from_ticket_cache(str(kdc.kerberos.kinit("ann")))
        who, servers = found(login, site())
        assert who.verdict is OK
        assert who.detail.startswith(f"ann@{REALM} by the ticket cache ")
        assert ", ann on the cluster, until 20" in who.detail
        assert ", renewable until 20" in who.detail
        assert servers.verdict is OK
        wanted = (f"rm/localhost@{REALM}", f"nn/localhost@{REALM}", "HTTP/localhost")
        assert servers.detail == ", ".join(wanted)

    def test_a_keytab(self, kdc: Kdc) -> None:
        who, _ = found(Login.from_keytab("ann", kdc.keytab_of("ann")), site())
        assert who.verdict is OK
        assert "the keytab gives a new ticket then" in who.detail

    def test_not_renewable(self, kdc: Kdc, tmp_path: Path) -> None:
        user = kdc.new_user()
        kdc.kerberos.kadmin(f"modprinc -maxrenewlife 0 {user}")
        cache = kdc.kerberos.kinit(user, "1h", cache=tmp_path / "cache")
        who, _ = found(Login.from_ticket_cache(str(cache)), site())
        assert who.verdict is NOTE
        assert who.detail.endswith("; it cannot be renewed")
        assert "kinit -R" in who.advice

    def test_soon_over(self, kdc: Kdc, tmp_path: Path) -> None:
        cache = kdc.kerberos.kinit("ann", "10m", "2h", cache=tmp_path / "cache")
        who, _ = found(Login.from_ticket_cache(str(cache)), site())
        assert (who.verdict, who.advice) == (NOTE, "kinit -R renews it")

    def test_expired_meanwhile(self, kdc: Kdc, tmp_path: Path) -> None:
        cache = kdc.kerberos.kinit("ann", "2s", cache=tmp_path / "cache")
        identity = cluster_identity(site(), {"KRB5CCNAME": str(cache)})
        time.sleep(3)
        (who,) = examine_login(site(), identity)
        assert who.verdict is WRONG
        assert who.detail.endswith("has expired: get a new one by kinit")

    def test_a_kdc_that_is_down(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = kdc.kerberos.kinit("ann", cache=tmp_path / "cache")
        monkeypatch.setenv("KRB5_CONFIG", kdc.configuration(free_port()))
        _, servers = found(Login.from_ticket_cache(str(cache)), site())
        assert servers.verdict is WRONG
        assert servers.detail.startswith("no KDC can be reached")

    def test_a_service_by_another_name(self, kdc: Kdc) -> None:
        login = Login.from_keytab("ann", kdc.keytab_of("ann"))
        _, servers = found(login, site(**{"yarn.resourcemanager.principal": f"yarn/_HOST@{REALM}"}))
        assert servers.verdict is WRONG
        assert f"the KDC does not know the service yarn/localhost@{REALM}" in servers.detail

    def test_a_web_server_by_another_name(self, kdc: Kdc) -> None:
        login = Login.from_keytab("ann", kdc.keytab_of("ann"))
        _, servers = found(login, site(**{"yarn.resourcemanager.webapp.address": "127.0.0.1:8088"}))
        assert servers.verdict is WRONG
        assert "the KDC does not know the service HTTP/127.0.0.1" in servers.detail
        assert "127.0.0.1" in servers.advice


def test_certificates(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {key} -out {certificate}"
    extra = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate by openssl")
    subprocess.run(["openssl", *words.split(), *extra], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with plain:
                try:
                    context.wrap_socket(plain, server_side=True).close()
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    web = Endpoints("RM", (Address("localhost", listener.getsockname()[1]),), tls=True)
    try:
        (finding,) = examine_certificate(web, ssl.create_default_context())
        assert finding.verdict is WRONG
        assert "its certificate is not trusted here (self-signed" in finding.detail
        assert "SSL_CERT_FILE" in finding.advice
        trusting = ssl.create_default_context(cafile=str(certificate))
        (finding,) = examine_certificate(web, trusting)
        assert finding.verdict is OK
        assert list(examine_certificate(web._replace(tls=False), trusting)) == []
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@pytest.mark.cluster
@pytest.mark.timeout(300)
class TestASecureCluster:
    def examine(self, tony: Tony, *words: str) -> Dict[str, str]:
        done = tony("doctor", "--no-probe", *words, check=False)
        lines = [line for line in done.stdout.splitlines() if not line.startswith(" " * 8)]
        return {line[8:].partition(":")[0].strip(): line for line in lines}

    def test_by_ticket_and_by_keytab(self, hadoop: GetHadoop, tmp_path: Path) -> None:
        cluster = hadoop("secure")
        tony = Tony(tmp_path, cluster)
        seen = self.examine(tony)
        assert f"ann@{REALM} by the ticket cache" in seen["Kerberos"]
        assert seen["tickets for servers"].startswith("ok"), seen
        assert seen["queue"].startswith("ok"), seen
        assert seen["HDFS"].startswith("ok"), seen
        keytab = str(cluster.keytab_of("bob"))
        seen = self.examine(tony, "--principal", f"bob@{REALM}", "--keytab", keytab)
        assert f"bob@{REALM} by the keytab {keytab}, bob on the cluster" in seen["Kerberos"]
        assert seen["HDFS"].startswith("ok"), seen

    @pytest.mark.nightly
    def test_a_queue_that_refuses_the_user(self, hadoop: GetHadoop, tmp_path: Path) -> None:
        tony = Tony(tmp_path, hadoop("secure", "queues"))
        seen = self.examine(tony, "--queue", "private")
        assert "ann may not submit to the queue root.private" in seen["queue"]
        assert seen["Kerberos"].startswith("ok")
        seen = self.examine(tony, "--queue", "tiny")
        assert seen["queue"].startswith("ok"), seen

    def test_without_a_ticket(self, hadoop: GetHadoop, tmp_path: Path) -> None:
        cluster = hadoop("secure")
        tony = Tony(tmp_path, cluster)
        tony.env["KRB5CCNAME"] = str(tmp_path / "none")
        seen = self.examine(tony)
        assert "there is no Kerberos ticket in" in seen["the scheduler"]
