"""What jobs leave in HDFS on a cluster with Kerberos: who reads history, and what gc removes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Callable, List, NamedTuple

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.site import read_site, write_site
from tests.cluster.hadoop.web import WebError
from tests.cluster.yarn.jobs import Tony

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECRETIVE = "named-by-ann-alone"


class Users(NamedTuple):
    """The command lines of two users of one cluster."""

    cluster: Hadoop
    ann: Tony
    bob: Tony


@pytest.fixture
def users(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> Users:
    cluster = hadoop("secure")
    ann, bob = tony_on(cluster), tony_on(cluster)
    ann.env.update(cluster.environment_of("ann"))
    bob.env.update(cluster.environment_of("bob"))
    return Users(cluster, ann, bob)


def run(one: Tony, **conf: Any) -> str:
    """The id of a small job that has ended."""
    job = one.submit(
        *("--executes", "true"),
        conf={
            "tony.application.name": SECRETIVE,
            "tony.application.framework": "mpi",
            "tony.worker.instances": 1,
            **conf,
        },
    )
    job.ends(0)
    return job.app_id


def listed(one: Tony, *words: str) -> List[str]:
    """The ids that ``tony history list`` prints."""
    shown = one.json("history list", *words)
    return [str(job["app_id"]) for job in shown["jobs"]]


def refused(one: Tony, verb: str, *words: str) -> str:
    """The one line with which it fails."""
    done = one(verb, *words, check=False)
    assert done.returncode != 0, done.stdout
    assert SECRETIVE not in done.stdout + done.stderr
    lines = str(done.stderr).strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


class TestHistory:
    def test_its_own_place_is_its_owners_not_the_page_readers(self, users: Users) -> None:
        app_id = run(users.ann, **{"tony.yarn.acl.view": "bob"})
        assert app_id in listed(users.ann)
        assert SECRETIVE in users.ann("history show", app_id).stdout
        assert app_id not in listed(users.bob)
        refused(users.bob, "history show", app_id)
        place = f"{users.cluster.default_fs}/user/ann/.tony/history"
        for verb, words in (("list", ()), ("show", (app_id,)), ("show", ())):
            message = refused(users.bob, f"history {verb}", "--history", place, *words)
            assert "bob" in message and "/user/ann" in message, message

    def test_a_shared_place_is_for_those_who_may_list_it(self, users: Users) -> None:
        files = users.cluster.hdfs_of("ann")
        for name, mode in (("open", "755"), ("closed", "700")):
            files.make_folder(f"/tmp/history-{name}", mode)
        place = f"{users.cluster.default_fs}/tmp/history"
        shared = run(users.ann, **{"tony.history.location": f"{place}-open"})
        hidden = run(users.ann, **{"tony.history.location": f"{place}-closed"})
        assert shared in listed(users.bob, "--history", f"{place}-open")
        shown = json.loads(
            users.bob("history show", shared, "--json", "--history", f"{place}-open").stdout
        )
        assert shown["job"]["name"] == SECRETIVE and shown["events"]
        # What bob reads, bob does not write: nor does TonY for him, who only looks.
        with pytest.raises(WebError, match="Permission denied: user=bob"):
            users.cluster.hdfs_of("bob").put("/tmp/history-open/mine", b"")
        assert hidden in listed(users.ann, "--history", f"{place}-closed")
        message = refused(users.bob, "history show", hidden, "--history", f"{place}-closed")
        assert "bob" in message and "history-closed" in message, message

    def test_a_portals_place_is_for_its_group_and_no_other_user(self, users: Users) -> None:
        """A sticky folder: all write into it, and its group lists it. The gateway is the portal."""
        cluster = users.cluster
        admin, portal = cluster.hdfs_of("admin"), cluster.hdfs_of("gateway")
        admin.make_folder("/tmp/history-portal")
        admin.give("/tmp/history-portal", "gateway", "gateway", "1773")
        place = f"{cluster.default_fs}/tmp/history-portal"
        app_id = run(users.ann, **{"tony.history.location": place})
        found = portal.list("/tmp/history-portal")[app_id]
        assert (found["owner"], found["group"], found["permission"]) == ("ann", "gateway", "770")
        folder = f"/tmp/history-portal/{app_id}"
        held = portal.list(folder)
        assert {"summary.json", "events-0001.jsonl", "tony-final.xml"} <= set(held)
        for name, file in held.items():
            owned = (file["owner"], file["group"], file["permission"])
            assert owned == ("ann", "gateway", "640"), name
        assert SECRETIVE in users.ann("history show", app_id, "--history", place).stdout
        for words in (("history list",), ("history show", app_id)):
            assert "bob" in refused(users.bob, *words, "--history", place)
        bob = cluster.hdfs_of("bob")
        for attempt in (
            lambda: bob.list("/tmp/history-portal"),
            lambda: bob.status(f"{folder}/summary.json"),
            lambda: bob.put(f"{folder}/summary.json", b"{}"),
            lambda: bob.delete(folder),
        ):
            with pytest.raises(WebError, match="Permission denied"):
                attempt()
        with pytest.raises(WebError, match="Permission denied"):
            portal.put(f"{folder}/summary.json", b"{}")
        assert "may not be listed" in self._gc(users.ann, place)
        assert portal.delete(folder), "as retention does"

    @staticmethod
    def _gc(one: Tony, place: str) -> str:
        """What ``tony gc`` says where the site keeps history there."""
        site = one.folder / "site"
        site.mkdir()
        write_site(site / "tony-site.xml", {"tony.history.location": place})
        one.env["TONY_CONF_DIR"] = str(site)
        return str(one("gc", "--dry-run").stderr)


def leave(cluster: Hadoop, user: str, app_id: str) -> str:
    """A folder as a master leaves it that had no time to remove it."""
    folder = f"/user/{user}/.tony/apps/{app_id}"
    cluster.hdfs_of(user).put(f"{folder}/journal", b"left")
    return folder


class TestCollection:
    def test_it_removes_what_is_the_users_own(self, users: Users, tmp_path: Path) -> None:
        cluster = users.cluster
        first, second = run(users.ann), run(users.bob)
        anns, bobs = leave(cluster, "ann", first), leave(cluster, "bob", second)
        site = tmp_path / "site"
        site.mkdir()
        write_site(site / "tony-site.xml", {"tony.history.retention-sec": "1"})
        users.ann.env["TONY_CONF_DIR"] = str(site)

        tried = users.ann("gc", "--dry-run").stdout
        assert f"would remove job folder and lease of {first} (it has ended)" in tried, tried
        assert cluster.hdfs_of("ann").list(anns)
        removed = users.ann("gc").stdout
        assert f"removed job folder and lease of {first} (it has ended)" in removed, removed
        assert f"removed history of {first}" in removed, removed
        assert second not in removed
        assert first not in cluster.hdfs_of("ann").list("/user/ann/.tony/apps")
        assert first not in listed(users.ann)
        assert "journal" in cluster.hdfs_of("bob").list(bobs)
        assert second in listed(users.bob)

        place = f"{cluster.default_fs}/user/bob/.tony"
        for more in ((), ("--dry-run",), ("--verify",), ("--verify", "--remove")):
            message = refused(users.ann, "gc", "--staging-dir", place, *more)
            assert "ann" in message and "/user/bob" in message, message
        assert "journal" in cluster.hdfs_of("bob").list(bobs)
        assert second in users.bob("gc").stdout

    def test_a_client_that_proves_nothing_gets_one_message(
        self, users: Users, tmp_path: Path
    ) -> None:
        """Its configuration is that of an open cluster, and it names itself ann."""
        cluster = users.cluster
        kept = leave(cluster, "ann", run(users.ann))
        conf = tmp_path / "conf"
        shutil.copytree(cluster.conf_dir, conf)
        core = read_site(conf / "core-site.xml")
        write_site(conf / "core-site.xml", {**core, "hadoop.security.authentication": "simple"})
        for name in ("KRB5_CONFIG", "KRB5CCNAME"):
            users.ann.env.pop(name)
        users.ann.env.update(HADOOP_CONF_DIR=str(conf), HADOOP_USER_NAME="ann")
        for more in ((), ("--dry-run",), ("--verify",)):
            message = refused(users.ann, "gc", *more)
            assert "Kerberos" in message and "hadoop.security.authentication" in message, message
        assert "journal" in cluster.hdfs_of("ann").list(kept)
