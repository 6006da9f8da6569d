"""DAGs on a cluster with Kerberos: a service that acts for users, and a ticket of Airflow's own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Callable, Dict, Iterator
from urllib.parse import urlsplit

import pytest

from tests.cluster.airflow import dags
from tests.cluster.airflow.rest import wait_for
from tests.cluster.airflow.standing import Airflow
from tests.cluster.airflow.training import TASK, Training
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.web import WebError
from tests.key_material import KeySearch, files_with_keys, keys_of_keytab

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DAGS = {"kerberos.py": dags.KERBEROS}
FEATURES = ("secure", "log_aggregation", "rm_recovery")
SERVICE = "gateway"
CACHE = "airflow-ccache"


def settings_of(cluster: Hadoop, folder: Path) -> Dict[str, str]:
    """Airflow's own Kerberos, with a ticket of bob's: the triggerer serves other users besides."""
    return {
        "KRB5_CONFIG": cluster.environment_of("bob")["KRB5_CONFIG"],
        "AIRFLOW__CORE__SECURITY": "kerberos",
        "AIRFLOW__KERBEROS__CCACHE": str(folder / CACHE),
        "AIRFLOW__KERBEROS__PRINCIPAL": f"bob@{REALM}",
        "AIRFLOW__KERBEROS__KEYTAB": str(cluster.keytab_of("bob")),
        "AIRFLOW__KERBEROS__INCLUDE_IP": "False",
    }


@pytest.fixture(autouse=True)
def logged_in(airflow: Airflow) -> Iterator[None]:
    """As ``airflow kerberos`` does it every hour."""
    airflow.command("kerberos", "--one-time")
    yield
    airflow.rest.close()


@pytest.fixture(scope="module", autouse=True)
def connections(airflow: Airflow, hadoop_clusters: object) -> None:
    """``gateway`` by its keytab, for whom a task names; ``only_ann`` for ann alone."""
    default = airflow.rest.get("connections/tony_default")
    site = json.loads(default["extra"])
    conf_dir = Path(site["hadoop_conf_dir"])
    keytab = conf_dir.parent / "kerberos" / "keytabs" / SERVICE
    assert keytab.exists(), keytab
    login = {"principal": f"{SERVICE}@{REALM}", "keytab": str(keytab), "webhdfs_conn_id": "files"}
    gateway = {**site, **login}
    only_ann = {**gateway, "proxy_user": "ann", "proxy_user_final": True}
    for name, extra in ((SERVICE, gateway), ("only_ann", only_ann)):
        airflow.rest.connect(name, "tony", extra=json.dumps(extra))


@pytest.fixture
def search(cluster: Hadoop) -> KeySearch:
    """For the keys of the service's keytab."""
    return KeySearch(keys_of_keytab(cluster.keytab_of(SERVICE).read_bytes()))


def is_users(cluster: Hadoop, app_id: str, user: str) -> None:
    """The application, its files and its history are a user's, and closed to the other."""
    assert cluster.application(app_id)["user"] == user
    files = cluster.hdfs_of(user)
    home = f"/user/{user}/.tony"
    for folder in (home, f"{home}/history", f"{home}/history/{app_id}"):
        assert {one["owner"] for one in files.list(folder).values()} == {user}, folder
    other = "bob" if user == "ann" else "ann"
    with pytest.raises(WebError, match=f"Permission denied: user={other}"):
        cluster.hdfs_of(other).list(f"{home}/history/{app_id}")


@pytest.mark.parametrize("how", ["sync", "deferred"])
def test_a_job_is_the_users(
    how: str,
    training: Callable[..., Training],
    cluster: Hadoop,
    airflow: Airflow,
    search: KeySearch,
) -> None:
    """Of whom the task names, its owner, or the ticket: three identities at once."""
    named = training(f"{how}_named", user="ann")
    owned, ticket = training(f"{how}_owned"), training(f"{how}_ticket")
    found = {one: one.trains() for one in (named, owned, ticket)}
    if how == "deferred":
        for one in found:
            one.wait("deferred")
    for one in found:
        one.over()
    for one, user in ((named, "ann"), (owned, "bob"), (ticket, "bob")):
        one.wait("success")
        if user == "ann":  # whose logs alone the sandbox's nodes show
            one.wait_for_words("trains")  # the chief's output
        is_users(cluster, found[one], user)
        assert one.rest.xcom(one.place, "tony_connection").get("proxy_user") == (
            None if one is ticket else user
        )
        page = f"{airflow.url}/tony/dags/{'/runs/'.join(one.place[:2])}/tasks/{TASK}/-1/"
        shown = airflow.rest.open(page)
        assert shown.ok and found[one] in shown.text, shown.text
    assert list(files_with_keys(search, [airflow.folder])) == []


@pytest.mark.parametrize("how", [pytest.param("sync", marks=pytest.mark.nightly), "deferred"])
def test_a_task_that_is_marked_ends_the_users_job(
    how: str, training: Callable[..., Training]
) -> None:
    one = training(f"{how}_named", user="ann")
    app_id = one.trains()
    one.wait("deferred" if how == "deferred" else "running")
    one.rest.mark(one.place, "failed")
    assert one.gone(app_id) == {app_id: "KILLED"}


THEFTS = {
    "file": "and no job takes that along",
    "link": "and no job takes that along",
    "job_file": "and no job takes that along",
    "by_another_connection": "is a keytab of this machine, which a job cannot take along",
    "login": "names no login of its own",
    "login_without_user": "names no login of its own",
    "ship": "tony.kerberos.ship-keytab",
    "rendered": "cannot be read: it is a keytab",
    "another_user": "lets no task choose the user, its jobs are ann's",
    "not_allowed": f"{SERVICE}@{REALM} is not allowed to act for admin",
    "no_user": "the task's proxy_user is empty",
}


def test_the_operator_gives_no_keytab_away(
    training: Callable[..., Training],
    cluster: Hadoop,
    airflow: Airflow,
    search: KeySearch,
    tmp_path: Path,
) -> None:
    keytab = cluster.keytab_of(SERVICE)
    link = tmp_path / "data.csv"
    link.symlink_to(keytab)
    before = {one["id"] for one in cluster.applications()}
    conf = {"keytab": str(keytab), "link": str(link), "user": ""}
    tries = {name: training(f"theft_{name}", **conf) for name in THEFTS}
    for name, one in tries.items():
        one.wait("failed")
        assert THEFTS[name] in one.wait_for_words(THEFTS[name]), name
        assert search.find(one.log().encode()) == []
    assert {one["id"] for one in cluster.applications()} == before
    assert list(files_with_keys(search, [airflow.folder])) == []


def test_hooks_of_one_process_have_logins_of_their_own(
    training: Callable[..., Training], cluster: Hadoop, airflow: Airflow, tmp_path: Path
) -> None:
    """Airflow's own WebHDFSHook by the ticket that TonY's tasks share, and TonY's by a keytab."""
    web = urlsplit(cluster.webhdfs_url)
    airflow.rest.connect("files", "webhdfs", host=web.hostname, port=web.port)
    cluster.hdfs.make_folder(f"/user/{SERVICE}")
    cluster.hdfs.give(f"/user/{SERVICE}", SERVICE, SERVICE, "700")
    local = tmp_path / "data"
    local.write_text("1,2,3\n")
    folder = f"files-{time.time_ns()}"
    one = training("files", local=str(local), run=folder)
    one.wait("success")
    sees = {"ann": True, "missing": False, "ticket": True, "bob": False, "itself": False}
    assert one.result() == sees, "ann's folder is closed to bob, and to the service itself"
    for user, names in {
        "ann": ["for-ann"],
        "bob": ["by-shared-ticket", "by-ticket", "for-bob"],
        SERVICE: ["itself"],
    }.items():
        listed = cluster.hdfs_of(user).list(f"/user/{user}/{folder}")
        assert sorted(listed) == names
        assert {entry["owner"] for entry in listed.values()} == {user}


def test_the_button_that_tests_a_connection(airflow: Airflow) -> None:
    extra = json.loads(airflow.rest.get(f"connections/{SERVICE}")["extra"])

    def pressed(**changed: str) -> Dict[str, object]:
        body = {
            "connection_id": "tried",
            "conn_type": "tony",
            "extra": json.dumps({**extra, **changed}),
        }
        found: Dict[str, object] = airflow.rest.call("POST", "connections/test", json=body)
        return found

    good = pressed(proxy_user="ann")
    assert good["status"] is True and f"{SERVICE} may act for ann" in str(good["message"])
    for changed, words in (
        ({"proxy_user": "admin"}, "is not allowed to impersonate admin"),
        ({"keytab": "/nowhere/x.keytab"}, "the keytab /nowhere/x.keytab cannot be read"),
        ({"principal": f"eve@{REALM}"}, f"has no keys of eve@{REALM}"),
        ({"keytab": "x.keytab"}, "its keytab x.keytab is not an absolute path"),
    ):
        bad = pressed(**changed)
        assert bad["status"] is False and words in str(bad["message"]), bad


@pytest.fixture
def short_ticket(airflow: Airflow, cluster: Hadoop) -> Iterator[Callable[[str], None]]:
    """``short_ticket("60s")``: the ticket of Airflow's, for so long."""

    def take(lifetime: str) -> None:
        path = Path(airflow.environment["AIRFLOW__KERBEROS__CCACHE"])
        cluster.kerberos.kinit("bob", lifetime, cache=path)

    yield take
    take("1h")


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["sync", "deferred"])
def test_a_ticket_that_has_expired_is_waited_for(
    how: str,
    training: Callable[..., Training],
    airflow: Airflow,
    cluster: Hadoop,
    short_ticket: Callable[[str], None],
) -> None:
    """While it waits, connections break (a triggerer, a ResourceManager restarts)."""
    began = time.monotonic()
    short_ticket("90s")
    one = training(f"{how}_ticket")
    app_id = one.trains()
    one.wait("deferred" if how == "deferred" else "running")
    time.sleep(max(0.0, began + 95 - time.monotonic()))
    if how == "deferred":
        airflow.crash("triggerer")
        airflow.start("triggerer")
        airflow.wait_healthy()
    else:
        cluster.restart_rm()
    cannot = "this triggerer cannot log in now" if how == "deferred" else "has expired"
    log = one.wait_for_words(cannot)
    assert f"the Kerberos ticket of bob@{REALM}" in log and "has expired" in log
    time.sleep(20)  # longer than any other refusal is borne
    assert one.state() in ("deferred", "running") and one.goes_on(app_id), one.story()
    short_ticket("1h")
    one.over()
    one.wait("success")
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}


@pytest.mark.nightly
def test_a_job_that_ends_without_a_ticket_is_no_failed_task(
    training: Callable[..., Training],
    airflow: Airflow,
    short_ticket: Callable[[str], None],
) -> None:
    """The task sees the end as soon as there is a ticket again."""
    began = time.monotonic()
    short_ticket("90s")
    one = training("deferred_ticket")
    app_id = one.trains()
    one.wait("deferred")
    time.sleep(max(0.0, began + 95 - time.monotonic()))
    airflow.crash("triggerer")
    airflow.start("triggerer")
    airflow.wait_healthy()
    one.wait_for_words("this triggerer cannot log in now")
    one.over()
    wait_for(
        lambda: one.applications(),
        lambda found: found[0]["finalStatus"] == "SUCCEEDED",
        lambda found: f"it has not ended: {found}",
    )
    assert one.state() == "deferred", one.story()
    short_ticket("1h")
    one.wait("success")
    assert one.gone(app_id) == {app_id: "SUCCEEDED"}
