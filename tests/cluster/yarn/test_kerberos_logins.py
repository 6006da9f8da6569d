"""Logins while jobs run on a cluster with Kerberos: tickets that end, and a KDC that is away."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.yarn.jobs import Tony
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
