"""Logins while jobs run on a cluster with Kerberos: tickets that end, keytabs that are
replaced, names that DNS gets wrong, and a KDC that is away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.native import find_wrapper
from tests.cluster.yarn.jobs import Tony, until
from tests.cluster.yarn.test_kerberos import Saving

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

OUTAGE_S = 600.0


@pytest.fixture
def secure(hadoop: GetHadoop) -> Hadoop:
    return hadoop("secure")


@pytest.fixture
def tony(secure: Hadoop, tony_on: Callable[..., Tony]) -> Tony:
    return tony_on(secure)


def waiting(folder: Path) -> str:
    """A program that ends when a file is there."""
    (folder / "src").mkdir()
    (folder / "src" / "wait.py").write_text(
        "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.2)\n"
    )
    return f"python3 wait.py {folder / 'over'}"


class TestATicketThatEnds:
    def test_the_job_goes_on_and_the_next_ticket_sees_its_end(
        self, secure: Hadoop, tony: Tony, tmp_path: Path
    ) -> None:
        cache = secure.kerberos.kinit(secure.user, "20s", cache=tmp_path / "cache")
        tony.env["KRB5CCNAME"] = str(cache)
        began = time.monotonic()
        words = ("--src_dir", str(tmp_path / "src"), "--executes", waiting(tmp_path), "--detach")
        done = tony("submit", *words, "--conf", "tony.am.memory=256")
        app_id = done.stdout.split()[-1]
        time.sleep(max(0.0, began + 22 - time.monotonic()))
        for verb in ("status", "kill", "logs"):
            refused = tony(verb, app_id, check=False)
            assert refused.returncode == 3, refused
            assert f"the Kerberos ticket of {secure.user}@{REALM} in the ticket cache" in (
                refused.stderr
            )
            assert "has expired: get a new one by kinit" in refused.stderr
            assert len(refused.stderr.splitlines()) == 1
        secure.kerberos.kinit(secure.user, cache=cache)
        assert tony.json("status", app_id)["state"] == "RUNNING"
        (tmp_path / "over").touch()
        assert tony("attach", app_id).returncode == 0

    @pytest.mark.nightly
    def test_the_watch_goes_on_by_the_connections_it_has(
        self, secure: Hadoop, tony: Tony, tmp_path: Path
    ) -> None:
        cache = secure.kerberos.kinit(secure.user, "60s", cache=tmp_path / "cache")
        tony.env["KRB5CCNAME"] = str(cache)
        running = tony.submit(
            *("--src_dir", str(tmp_path / "src"), "--executes", waiting(tmp_path))
        )
        assert running.app_id
        time.sleep(75)
        refused = tony("status", running.app_id, check=False)
        assert "has expired: get a new one by kinit" in refused.stderr
        assert running.process.poll() is None, running.output_text
        (tmp_path / "over").touch()
        running.ends(0)


class TestAKeytab:
    def test_a_job_by_a_keytab_without_a_ticket(
        self, secure: Hadoop, tony: Tony, tmp_path: Path
    ) -> None:
        tony.env["KRB5CCNAME"] = str(tmp_path / "none")
        tony.env.pop("HADOOP_USER_NAME", None)
        login = ("--principal", f"bob@{REALM}", "--keytab", str(secure.keytab_of("bob")))
        done = tony(
            "submit", "--executes", "true", "--conf", "tony.am.memory=256", "--json", *login
        )
        assert done.returncode == 0
        listed = tony.json("list", *login)["applications"]
        assert listed[0]["user"] == "bob"
        refused = tony("list", check=False)
        assert refused.returncode == 3
        assert "there is no Kerberos ticket in" in refused.stderr

    def test_one_that_does_not_fit_starts_nothing(self, secure: Hadoop, tony: Tony) -> None:
        login = ("--principal", f"ann@{REALM}", "--keytab", str(secure.keytab_of("bob")))
        done = tony("submit", "--executes", "true", *login, check=False)
        assert done.returncode == 3
        assert f"has no keys of ann@{REALM}: name a principal that it has" in done.stderr

    def test_one_that_is_replaced_while_its_job_is_watched(
        self, secure: Hadoop, tony: Tony, tmp_path: Path
    ) -> None:
        keytab, new = tmp_path / "keytab", tmp_path / "new-keytab"
        shutil.copy(secure.keytab_of("bob"), keytab)
        tony.env["KRB5CCNAME"] = str(tmp_path / "none")
        login = ("--principal", f"bob@{REALM}", "--keytab", str(keytab))
        running = tony.submit(
            *("--src_dir", str(tmp_path / "src"), "--executes", waiting(tmp_path), *login)
        )
        app_id = running.app_id
        until(lambda: tony.json("status", app_id, *login)["state"] == "RUNNING", "it runs")
        try:
            secure.kerberos.kadmin("cpw -randkey bob", f"ktadd -norandkey -k {new} bob")
            refused = tony("status", app_id, *login, check=False)
            assert refused.returncode == 3
            assert f"the keys of bob@{REALM} in the keytab {keytab} are not those of the KDC" in (
                refused.stderr
            )
            new.replace(keytab)
            assert tony.json("status", app_id, *login)["state"] == "RUNNING"
            assert running.process.poll() is None, running.output_text
            (tmp_path / "over").touch()
            running.ends(0)
            tony("submit", "--executes", "true", "--conf", "tony.am.memory=256", *login)
        finally:
            # For the tests that follow on this cluster.
            secure.keytab_of("bob").unlink()
            secure.kerberos.kadmin(f"ktadd -norandkey -k {secure.keytab_of('bob')} bob")


class TestNames:
    """A resolver that gives the cluster's host another name, which no principal has."""

    @pytest.fixture
    def lying(self, secure: Hadoop, tony: Tony, tmp_path: Path) -> Tony:
        """Its client has a krb5.conf that leaves the library's own defaults, which ask DNS."""
        hosts, conf = tmp_path / "hosts", tmp_path / "krb5.conf"
        hosts.write_text("127.0.0.1 liar.example localhost web.example\n")
        text = secure.kerberos.krb5_conf.read_text()
        for line in ("rdns = false", "dns_canonicalize_hostname = false"):
            assert line in text
            text = text.replace(line, "")
        conf.write_text(text)
        tony.env.update(
            KRB5_CONFIG=str(conf), NSS_WRAPPER_HOSTS=str(hosts), LD_PRELOAD=find_wrapper() or ""
        )
        names = "import socket; print(*socket.gethostbyaddr(socket.gethostbyname('localhost'))[:1])"
        assert self.run(tony, sys.executable, "-c", names) == "liar.example\n"
        # Who believes the resolver gets no ticket.
        assert "HTTP/liar.example" in self.run(tony, "kvno", "-S", "HTTP", "localhost")
        return tony

    def run(self, tony: Tony, *command: str) -> str:
        """What a program says in the environment of the commands."""
        done = subprocess.run(
            command,
            env=tony.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
        )
        return done.stdout

    def test_a_job_goes_by_the_configured_names(self, lying: Tony) -> None:
        done = lying("submit", "--executes", "true", "--conf", "tony.am.memory=256", "--json")
        app_id = json.loads(done.stdout.splitlines()[0])["app_id"]
        assert lying.json("status", app_id)["state"] == "SUCCEEDED"
        assert lying("logs", app_id).returncode == 0
        (servers,) = self.tickets_for_servers(lying)
        assert servers["verdict"] == "ok"
        assert "HTTP/localhost" in servers["said"]

    def test_the_doctor_names_a_web_server_whose_principal_has_another_name(
        self, secure: Hadoop, lying: Tony, tmp_path: Path
    ) -> None:
        conf = tmp_path / "conf"
        shutil.copytree(secure.conf_dir, conf)
        site = conf / "yarn-site.xml"
        host, _, port = secure.rm_url.rpartition("/")[2].partition(":")
        assert f">{host}:{port}<" in site.read_text()
        site.write_text(site.read_text().replace(f">{host}:{port}<", f">web.example:{port}<"))
        lying.env["HADOOP_CONF_DIR"] = str(conf)
        (servers,) = self.tickets_for_servers(lying)
        assert servers["verdict"] == "wrong"
        assert servers["said"].startswith("the KDC does not know the service HTTP/web.example (")
        assert servers["advice"] == (
            "web.example is 127.0.0.1, and in reverse DNS that address is liar.example: if the KDC"
            " has HTTP/liar.example, write liar.example in place of web.example in the site's"
            " configuration"
        )

    def tickets_for_servers(self, tony: Tony) -> List[Dict[str, str]]:
        """What the doctor finds about them."""
        done = tony("doctor", "--no-probe", "--json", check=False)
        found = json.loads(done.stdout)["findings"]
        return [one for one in found if one["what"] == "tickets for servers"]


class TestAKdcThatIsAway:
    @pytest.fixture
    def without_kdc(self, secure: Hadoop) -> Iterator[Hadoop]:
        secure.stop("kdc")
        yield secure
        secure.start("kdc")

    def test_at_submit(self, without_kdc: Hadoop, tony: Tony, tmp_path: Path) -> None:
        keytab = str(without_kdc.keytab_of("bob"))
        login = ("--principal", f"bob@{REALM}", "--keytab", keytab)
        began = time.monotonic()
        done = tony("submit", "--executes", "true", *login, check=False)
        assert done.returncode == 3
        assert "no KDC can be reached (Cannot contact any KDC" in done.stderr
        assert time.monotonic() - began < 15

    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("away_s", [10, pytest.param(600, marks=pytest.mark.nightly)])
    def test_while_a_job_is_watched(
        self, secure: Hadoop, tony: Tony, tmp_path: Path, away_s: int
    ) -> None:
        tony.env["KRB5CCNAME"] = str(secure.kerberos.kinit(secure.user, cache=tmp_path / "cache"))
        running = tony.submit(
            *("--src_dir", str(tmp_path / "src"), "--executes", waiting(tmp_path))
        )
        assert running.app_id
        secure.stop("kdc")
        try:
            time.sleep(away_s)
            assert tony.json("status", running.app_id)["state"] == "RUNNING"
            (tmp_path / "over").touch()
            running.ends(0)
        finally:
            secure.start("kdc")

    @pytest.mark.nightly
    @pytest.mark.timeout(1200)
    def test_ten_minutes_in_mid_job(self, secure: Hadoop, tony: Tony, tmp_path: Path) -> None:
        """Job, checkpoints and watch go on by what they have; a new client says what is wrong."""
        tony.env["KRB5CCNAME"] = str(secure.kerberos.kinit(secure.user, cache=tmp_path / "cache"))
        saving = Saving(tony)
        job = saving.job
        job.until(saving.saves, "both have saved")
        unused = secure.kerberos.kinit(secure.user, cache=tmp_path / "unused")
        secure.stop("kdc")
        try:
            deadline = time.monotonic() + OUTAGE_S
            while time.monotonic() < deadline:
                job.until(saving.grows(), "they save on")
                with_tickets = tony("status", job.app_id, "--json")
                tony.env["KRB5CCNAME"] = str(unused)
                refused = tony("status", job.app_id, check=False)
                tony.env["KRB5CCNAME"] = str(tmp_path / "cache")
                assert '"RUNNING"' in with_tickets.stdout
                assert refused.returncode == 3
                assert "no KDC can be reached" in refused.stderr
                time.sleep(20)
            assert job.process.poll() is None, job.output_text
        finally:
            secure.start("kdc")
        tony.env["KRB5CCNAME"] = str(unused)
        assert tony.json("status", job.app_id)["attempt"] == 1
        saving.tell("over")
        job.ends(0)
        for lines in saving.lines().values():
            assert len({line[1] for line in lines}) == 1, job.events()
