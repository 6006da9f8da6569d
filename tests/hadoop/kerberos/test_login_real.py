"""Logins to a real KDC: tickets, keytabs, many users at once, and each error in one sentence."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.native import find_wrapper
from tests.cluster.kdc import Kdc, free_port
from tests.hadoop.kerberos.acceptor import Acceptor
from tony_core.hadoop.errors import HadoopError, KdcUnreachable, LoginError, NoTicket
from tony_core.hadoop.identity import KEYTAB, PRINCIPAL, cluster_identity
from tony_core.hadoop.kerberos import gssapi
from tony_core.hadoop.kerberos.gssapi import KRB5, SPNEGO, Target
from tony_core.hadoop.kerberos.login import KDC_S, Login
from tony_core.hadoop.site.configuration import SiteConfiguration

pytestmark = pytest.mark.cluster

RM = f"rm/localhost@{REALM}"
SITE = SiteConfiguration.of({"hadoop.security.authentication": "kerberos"})


def handshake(login: Login, kdc: Kdc, service: str = "rm") -> str:
    """Authenticate to a server with a service's keys; who it takes the client for."""
    server = Acceptor(kdc.keytab_of(service))
    try:
        context = login.authenticate(f"{service}/localhost@{REALM}")
        assert context.step(server.step(context.step())) == b""
        assert context.complete and context.is_mutual
        return server.client
    finally:
        server.close()


def why(work: Callable[[], object]) -> str:
    """The error of a login: one sentence."""
    with pytest.raises(LoginError) as caught:
        work()
    return str(caught.value)


def by_keytab(kdc: Kdc, user: str) -> Login:
    return Login.from_keytab(f"{user}@{REALM}", kdc.keytab_of(user))


class TestTickets:
    @pytest.mark.parametrize("form", ["{}", "FILE:{}"])
    def test_of_a_file(self, kdc: Kdc, form: str) -> None:
        cache = kdc.kerberos.kinit("ann")
        login = Login.from_ticket_cache(form.format(cache))
        assert handshake(login, kdc) == login.principal == f"ann@{REALM}"
        assert 0 < (login.check() or 0) <= 10 * 3600
        assert not login.is_keytab

    def test_of_a_folder(self, kdc: Kdc, tmp_path: Path) -> None:
        shutil.copy(kdc.kerberos.kinit("bob"), tmp_path / "tkt")
        (tmp_path / "primary").write_text("tkt\n")
        assert handshake(Login.from_ticket_cache(f"DIR:{tmp_path}"), kdc) == f"bob@{REALM}"

    def test_of_the_variable(self, kdc: Kdc) -> None:
        cache = kdc.kerberos.kinit("bob")
        found = cluster_identity(SITE, {"KRB5CCNAME": str(cache), "HADOOP_USER_NAME": "root"})
        assert (found.user, found.is_secure) == ("bob", True)

    def test_a_new_one_is_used(self, kdc: Kdc, tmp_path: Path) -> None:
        user = kdc.new_user()
        cache = kdc.kerberos.kinit(user, "2s", cache=tmp_path / "cache")
        login = Login.from_ticket_cache(str(cache))
        assert handshake(login, kdc) == f"{user}@{REALM}"
        time.sleep(3.5)  # its end is a whole second
        text = why(lambda: handshake(login, kdc))
        assert text.endswith("has expired: get a new one by kinit")
        assert f"{user}@{REALM} in the ticket cache {cache}" in text
        kdc.kerberos.kinit(user, cache=cache)
        assert handshake(login, kdc) == f"{user}@{REALM}"

    def test_an_expired_one_at_the_start(self, kdc: Kdc, tmp_path: Path) -> None:
        cache = kdc.kerberos.kinit("ann", "1s", cache=tmp_path / "cache")
        time.sleep(2.5)
        text = why(lambda: cluster_identity(SITE, {"KRB5CCNAME": str(cache)}))
        assert f"the Kerberos ticket of ann@{REALM}" in text
        for name, has_expired in ((str(cache), True), (f"{tmp_path}/none", False)):
            with pytest.raises(NoTicket) as caught:  # which another may replace
                Login.from_ticket_cache(name).check()
            assert caught.value.has_expired is has_expired
        assert Login.from_ticket_cache(f"FILE:{cache}").files == (str(cache),)
        assert Login.from_ticket_cache("KCM:").files == ()

    @pytest.mark.parametrize("name", ["FILE:{}/none", "{}/none", "DIR:{}", "KCM:", "XYZ:1"])
    def test_none(self, kdc: Kdc, tmp_path: Path, name: str) -> None:
        name = name.format(tmp_path)
        text = why(lambda: cluster_identity(SITE, {"KRB5CCNAME": name}))
        assert text == (
            f"there is no Kerberos ticket in the ticket cache {name}: get one by kinit, or name a"
            " keytab (--principal, --keytab)"
        )


class TestKeytabs:
    def test_a_keytab(self, kdc: Kdc) -> None:
        assert handshake(by_keytab(kdc, "bob"), kdc) == f"bob@{REALM}"
        login = Login.from_keytab("bob", kdc.keytab_of("bob"))
        assert login.principal == f"bob@{REALM}"

    def test_it_goes_before_tokens_and_tickets(self, kdc: Kdc) -> None:
        env = {
            PRINCIPAL: "bob",
            KEYTAB: kdc.keytab_of("bob"),
            "HADOOP_TOKEN_FILE_LOCATION": "/none",
            "KRB5CCNAME": str(kdc.kerberos.kinit("ann")),
        }
        assert cluster_identity(SITE, env).user == "bob"
        with pytest.raises(HadoopError, match=f"{PRINCIPAL} is set and {KEYTAB} is not"):
            cluster_identity(SITE, {PRINCIPAL: "bob"})

    def test_of_another_principal(self, kdc: Kdc) -> None:
        text = why(lambda: Login.from_keytab(f"ann@{REALM}", kdc.keytab_of("bob")))
        assert text.endswith(
            f"has no keys of ann@{REALM}: name a principal that it has by --principal (bob@{REALM})"
        )

    def test_that_is_none(self, kdc: Kdc, tmp_path: Path) -> None:
        (tmp_path / "k").write_text("password")
        text = why(lambda: Login.from_keytab("ann", str(tmp_path / "k")))
        assert (
            text
            == f"the keytab {tmp_path / 'k'} cannot be used, for it is not a keytab: get a new one"
        )

    def test_that_cannot_be_read(self, kdc: Kdc, tmp_path: Path) -> None:
        text = why(lambda: Login.from_keytab("ann", str(tmp_path / "none")))
        assert "cannot be read (no such file or directory)" in text
        text = why(lambda: Login.from_keytab("ann", str(tmp_path)))
        assert "cannot be read (is a directory)" in text

    @pytest.mark.parametrize("preauth", ["+", "-"])
    def test_whose_keys_are_old_and_that_is_replaced(
        self, kdc: Kdc, tmp_path: Path, preauth: str
    ) -> None:
        user = kdc.new_user()
        keytab = tmp_path / "keytab"
        shutil.copy(kdc.keytab_of(user), keytab)
        kdc.kerberos.kadmin(f"modprinc {preauth}requires_preauth {user}", f"cpw -randkey {user}")
        login = Login.from_keytab(user, str(keytab))
        assert f"the keys of {user}@{REALM} in the keytab {keytab} are not those of the KDC" in why(
            login.check
        )
        keytab.unlink()
        kdc.kerberos.kadmin(f"ktadd -norandkey -k {keytab} {user}")
        assert handshake(login, kdc) == f"{user}@{REALM}"

    def test_that_vanished_after_the_login(self, kdc: Kdc, tmp_path: Path) -> None:
        user = kdc.new_user()
        keytab = tmp_path / "keytab"
        shutil.copy(kdc.keytab_of(user), keytab)
        login = Login.from_keytab(user, str(keytab))
        keytab.unlink()
        assert "cannot be read (no such file or directory)" in why(login.check)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                "modprinc -allow_tix {}",
                "the KDC refuses {} (Client's credentials have been revoked)",
            ),
            ("modprinc -expire yesterday {}", "the KDC refuses {} (Client's entry in database has"),
            ("modprinc -pwexpire yesterday {}", "the password of {} has expired: change it by"),
            ("delprinc -force {}", "the KDC does not know {} (Client '{}' not found in Kerberos"),
        ],
    )
    def test_a_client(self, kdc: Kdc, change: str, words: str) -> None:
        user = kdc.new_user()
        kdc.kerberos.kadmin(change.format(user))
        text = why(by_keytab(kdc, user).check)
        assert words.replace("{}", f"{user}@{REALM}") in text

    def test_a_service_that_is_not_known(self, kdc: Kdc) -> None:
        login = by_keytab(kdc, "ann")
        text = why(login.authenticate(f"rm/elsewhere@{REALM}").step)
        assert f"does not know the service rm/elsewhere@{REALM}" in text
        assert "reverse DNS" in text

    def test_a_service_of_another_realm(self, kdc: Kdc) -> None:
        login = by_keytab(kdc, "ann")
        text = why(login.authenticate("rm/localhost@OTHER.EXAMPLE").step)
        assert "leads to no realm OTHER.EXAMPLE" in text

    def test_a_web_server_that_is_not_known(self, kdc: Kdc) -> None:
        context = by_keytab(kdc, "ann").new_context(Target(service="HTTP@127.0.0.3"), SPNEGO)
        assert "the KDC does not know the service HTTP/127.0.0.3" in why(context.step)

    @pytest.mark.parametrize("mechanism", [KRB5, SPNEGO])
    def test_a_web_server_of_another_domain_is_an_unknown_name_and_no_wrong_realm(
        self, kdc: Kdc, mechanism: str
    ) -> None:
        """The KDC says that it leads to no realm CORP.EXAMPLE, which the library has guessed."""
        target = Target(service="HTTP@web.corp.example")
        text = why(by_keytab(kdc, "ann").new_context(target, mechanism).step)
        assert text.startswith("the KDC does not know the service HTTP/web.corp.example (")
        assert "correct web.corp.example in the site's configuration" in text
        assert "ask the administrator of Kerberos for the principal" in text
        assert "leads to no realm" not in text and "log in as" not in text

    def test_a_web_server_that_krb5_conf_puts_into_another_realm(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = kdc.kerberos.krb5_conf.read_text()
        (tmp_path / "krb5.conf").write_text(
            text.replace("[domain_realm]", "[domain_realm]\n  .corp.example = OTHER.EXAMPLE")
        )
        monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
        target = Target(service="HTTP@web.corp.example")
        text = why(by_keytab(kdc, "ann").new_context(target, SPNEGO).step)
        assert text.startswith("the KDC leads to no realm OTHER.EXAMPLE (")
        assert "[domain_realm]" in text

    def test_who_forges_names_chooses_no_web_server(self, kdc: Kdc, tmp_path: Path) -> None:
        """The library's default is to ask DNS who a host really is, and to believe it."""
        (tmp_path / "hosts").write_text("127.0.0.1 localhost namenode\n")
        text = kdc.kerberos.krb5_conf.read_text()
        for line in ("rdns = false", "dns_canonicalize_hostname = false"):
            assert line in text
            text = text.replace(line, "")
        (tmp_path / "krb5.conf").write_text(text)
        env = {
            **os.environ,
            "KRB5_CONFIG": str(tmp_path / "krb5.conf"),
            "LD_PRELOAD": find_wrapper() or "",
            "NSS_WRAPPER_HOSTS": str(tmp_path / "hosts"),
        }
        code = (
            "import socket, sys\n"
            "from tony_core.hadoop.kerberos.gssapi import SPNEGO, Target\n"
            "from tony_core.hadoop.kerberos.login import Login\n"
            "print(socket.getaddrinfo('namenode', 1, flags=socket.AI_CANONNAME)[0][3])\n"
            "login = Login.from_keytab(*sys.argv[1:])\n"
            "for host in ('LOCALHOST', 'namenode'):\n"
            "    try:\n"
            "        login.new_context(Target(service=f'HTTP@{host}'), SPNEGO).step()\n"
            "        print(host)\n"
            "    except Exception as error:\n"
            "        print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, f"ann@{REALM}", kdc.keytab_of("ann")],
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        names, known, forged = done.stdout.splitlines()
        assert (names, known) == ("localhost", "LOCALHOST"), done.stdout + done.stderr
        assert forged.startswith("the KDC does not know the service HTTP/namenode ")

    def test_a_principal_of_another_realm(self, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
        conf = kdc.folder / "other.conf"
        text = kdc.kerberos.krb5_conf.read_text()
        conf.write_text(text.replace(f"default_realm = {REALM}", "default_realm = OTHER.EXAMPLE"))
        cache = kdc.kerberos.kinit("ann")
        monkeypatch.setenv("KRB5_CONFIG", str(conf))
        with pytest.raises(HadoopError, match=r"is OTHER\.EXAMPLE\): log in as"):
            cluster_identity(SITE, {"KRB5CCNAME": str(cache)})

    def test_a_server_without_the_key(self, kdc: Kdc) -> None:
        """It answers, and proves nothing."""
        context = by_keytab(kdc, "ann").authenticate(RM)
        server = Acceptor(kdc.keytab_of("nn"))
        try:
            with pytest.raises(gssapi.GssError):
                server.step(context.step())
        finally:
            server.close()


class TestTheKdc:
    def test_refused(self, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
        login = by_keytab(kdc, kdc.new_user())
        monkeypatch.setenv("KRB5_CONFIG", kdc.configuration(free_port()))
        with pytest.raises(KdcUnreachable, match=r"^no KDC can be reached \(Cannot contact any"):
            login.check()
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.kerberos.krb5_conf))
        login.check()

    @pytest.mark.nightly
    def test_a_black_hole(self, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
        login = by_keytab(kdc, kdc.new_user())
        with socket.create_server(("127.0.0.1", 0)) as hole:
            monkeypatch.setenv("KRB5_CONFIG", kdc.configuration(hole.getsockname()[1]))
            began = time.monotonic()
            with pytest.raises(KdcUnreachable, match=r"^no KDC has answered within 15 s: "):
                login.check()
            assert time.monotonic() - began < KDC_S + 2

    def test_tickets_that_are_there_need_none(
        self, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = Login.from_ticket_cache(str(kdc.kerberos.kinit("ann")))
        handshake(login, kdc)
        monkeypatch.setenv("KRB5_CONFIG", kdc.configuration(free_port()))
        assert handshake(login, kdc) == f"ann@{REALM}"


class TestTheMachine:
    def test_no_realm_in_its_configuration(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = by_keytab(kdc, kdc.new_user())
        (tmp_path / "krb5.conf").write_text("[libdefaults]\n dns_lookup_kdc = false\n")
        monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
        assert why(login.check).startswith("krb5.conf names no KDC of the realm (Cannot find KDC")

    @pytest.mark.parametrize("ends", ["none.conf", "none.conf:{}/neither.conf"])
    def test_its_configuration_is_not_there(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
    ) -> None:
        login = by_keytab(kdc, kdc.new_user())
        named = f"{tmp_path}/{ends.format(tmp_path)}"
        monkeypatch.setenv("KRB5_CONFIG", named)
        missing = (
            f"KRB5_CONFIG names {tmp_path / 'none.conf'}, which cannot be read (no such file or"
            " directory): correct the path or its permissions, or unset KRB5_CONFIG to use"
            " /etc/krb5.conf"
        )
        assert why(login.check) == missing
        assert why(lambda: Login.from_keytab("ann", kdc.keytab_of("ann"))) == missing

    def test_one_of_its_configurations_is_there(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = by_keytab(kdc, kdc.new_user())
        monkeypatch.setenv("KRB5_CONFIG", f"{tmp_path}/none.conf:{kdc.kerberos.krb5_conf}")
        login.check()
        (tmp_path / "krb5.conf").write_text("[libdefaults]\n dns_lookup_kdc = false\n")
        monkeypatch.setenv("KRB5_CONFIG", f"{tmp_path}/none.conf:{tmp_path}/krb5.conf")
        login = by_keytab(kdc, kdc.new_user())
        assert why(login.check).startswith("krb5.conf names no KDC of the realm (Cannot find KDC")

    def test_its_configuration_is_a_folder(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = by_keytab(kdc, kdc.new_user())
        monkeypatch.setenv("KRB5_CONFIG", str(tmp_path))
        text = why(login.check)
        assert text.startswith(
            f"KRB5_CONFIG names {tmp_path}, which cannot be read (is a directory"
        )

    @pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
    def test_its_configuration_may_not_be_read(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = by_keytab(kdc, kdc.new_user())
        (tmp_path / "krb5.conf").write_text("[libdefaults]\n default_realm = X.EXAMPLE\n")
        (tmp_path / "krb5.conf").chmod(0)
        monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
        assert "/krb5.conf, which cannot be read (permission denied): " in why(login.check)

    def test_its_configuration_is_damaged(
        self, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = by_keytab(kdc, kdc.new_user())
        (tmp_path / "krb5.conf").write_text("[libdefaults\n x")
        monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
        assert why(login.check).startswith("Kerberos is not configured on this machine (Improper")

    def test_no_library(self, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
        cache = kdc.kerberos.kinit("ann")
        gc.collect()  # what other tests left is released by the library
        gc.disable()
        monkeypatch.setattr(gssapi, "_found", [])
        monkeypatch.setattr(gssapi, "LIBRARY", "libnone.so.0")
        monkeypatch.setattr(gssapi.ctypes.util, "find_library", lambda name: None)
        try:
            text = why(lambda: cluster_identity(SITE, {"KRB5CCNAME": str(cache)}))
        finally:
            gc.enable()
        assert text.startswith("this machine has no GSSAPI library for Kerberos (libnone.so.0)")


class TestManyUsers:
    def test_two_at_once(self, kdc: Kdc) -> None:
        """The process's own environment names no ticket."""
        logins: Dict[str, Login] = {
            "ann": Login.from_ticket_cache(str(kdc.kerberos.kinit("ann"))),
            "bob": by_keytab(kdc, "bob"),
        }
        wrong: List[str] = []
        start = threading.Barrier(2)

        def work(user: str) -> None:
            start.wait(10)
            try:
                for _ in range(100):
                    seen = handshake(logins[user], kdc)
                    if seen != f"{user}@{REALM}":
                        wrong.append(f"{user}: {seen}")
            except Exception as error:
                wrong.append(f"{user}: {error}")

        threads = [threading.Thread(target=work, args=(user,)) for user in logins]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []

    def test_after_a_fork(self, kdc: Kdc) -> None:
        login = by_keytab(kdc, "bob")
        handshake(login, kdc)
        child = os.fork()
        if not child:
            try:
                os._exit(0 if handshake(login, kdc) == f"bob@{REALM}" else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0

    def test_memory_does_not_grow(self, kdc: Kdc) -> None:
        logins = [Login.from_ticket_cache(str(kdc.kerberos.kinit("ann"))), by_keytab(kdc, "bob")]

        def use(times: int) -> int:
            for _ in range(times):
                for login in logins:
                    handshake(login, kdc)
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        before = use(200)
        assert use(1000) - before < 1 << 20
