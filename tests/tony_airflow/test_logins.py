"""As whom a task's jobs run, and what its author cannot do with the connection's login."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Optional

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowException, AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from tests.hadoop.kerberos.test_files import CREDENTIALS, KEYTAB, cache
from tests.tony_airflow.conftest import Connect
from tests.tony_airflow.tasks import ONE_WORKER, Instance, operator
from tests.tony_airflow.test_connection import site, wrong
from tony_airflow import errors, logins
from tony_airflow.connection import Site
from tony_airflow.decorators.tony import tony_task
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.logins import SiteError, find_ticket_cache, requested_user
from tony_airflow.operators.submission import open_hook
from tony_airflow.operators.tony import TonyOperator
from tony_airflow.pages.history import site_for
from tony_airflow.sensors.tony import TonySensor
from tony_core.hadoop.identity import KEYTAB as KEYTAB_VARIABLE
from tony_core.hadoop.identity import PRINCIPAL, PROXY_USER
from tony_core.job.problems import JobError
from tony_core.schedulers.port import LastingRefusal, NotLoggedIn

LOGIN = {"principal": "gateway@X", "keytab": "/etc/gateway.keytab"}
KEYS = {"tony.kerberos.principal": "gateway@X", "tony.kerberos.keytab": "/etc/gateway.keytab"}


class TestTheConnection:
    def test_its_fields(self) -> None:
        made = site({"scheduler": "yarn", **LOGIN, "proxy_user": "ann", "proxy_user_final": True})
        assert (made.principal, made.keytab) == ("gateway@X", "/etc/gateway.keytab")
        assert made.proxy_user == "ann" and made.proxy_user_final is True
        wanted = {PRINCIPAL: "gateway@X", KEYTAB_VARIABLE: "/etc/gateway.keytab", PROXY_USER: "ann"}
        for each in (made, Site.from_dict(json.loads(json.dumps(made.for_trigger())))):
            assert each == made
            assert each.env({PROXY_USER: "bob", PRINCIPAL: "other@X", "A": "1"}) == {
                **wanted,
                "A": "1",
            }

    def test_keys_mean_the_same_and_are_in_no_job(self) -> None:
        made = site({"scheduler": "yarn", "conf": {**KEYS, "tony.am.memory": "1g"}})
        assert made == site({"scheduler": "yarn", **LOGIN, "conf": {"tony.am.memory": "1g"}})
        assert made.conf_below() == {"tony.am.memory": "1g"}
        assert site({"scheduler": "yarn", **LOGIN, "conf": KEYS}) == site(
            {"scheduler": "yarn", **LOGIN}
        )

    def test_the_argument_of_a_trigger_of_an_older_version(self) -> None:
        old = {"scheduler": "yarn", "conf": {**KEYS, "tony.am.memory": "1g"}}
        made = Site.from_dict(old)
        assert made.principal == "gateway@X" and made.conf == {"tony.am.memory": "1g"}

    @pytest.mark.parametrize(
        ("extra", "message"),
        [
            ({"principal": "a@X"}, "it names a principal and no keytab: name both, or neither"),
            ({"keytab": "/a"}, "it names a keytab and no principal: name both, or neither"),
            ({"conf": {"tony.kerberos.keytab": "/a"}}, "it names a keytab and no principal"),
            ({**LOGIN, "keytab": "a.keytab"}, "its keytab a.keytab is not an absolute path"),
            ({"proxy_user": "ann@X"}, "its proxy_user is 'ann@X', which is no user's short name"),
            ({"proxy_user_final": "perhaps"}, "is 'perhaps', which is neither true nor false"),
            ({"proxy_user": 3}, "its proxy_user is 3, which is not a text"),
            (
                {**LOGIN, "conf": {"tony.kerberos.principal": "b@X"}},
                "its principal is gateway@X, and tony.kerberos.principal in its conf is b@X",
            ),
            ({"scheduler": "local", **LOGIN}, "the scheduler local takes no principal or keytab"),
            ({"scheduler": "local", "proxy_user": "a"}, "the scheduler local takes no proxy_user"),
        ],
    )
    def test_refusals(self, extra: Dict[str, Any], message: str) -> None:
        assert message in wrong({"scheduler": "yarn", **extra})


def train(day: str = "today") -> str:
    return day


def task(**arguments: Any) -> TonyOperator:
    return TonyOperator(task_id="train", executes="true", **arguments)


class TestWhomATaskAsksFor:
    @pytest.mark.parametrize("kind", [TonyOperator, TonySensor])
    def test_arguments(self, kind: Any) -> None:
        assert requested_user(kind(task_id="a")) is None
        assert requested_user(kind(task_id="a", proxy_user="ann")) == "ann"
        assert requested_user(kind(task_id="a", owner="ann", run_as_owner=True)) == "ann"
        assert "proxy_user" in kind.template_fields
        with pytest.raises(ValueError, match="both name the user"):
            kind(task_id="a", proxy_user="ann", run_as_owner=True)
        with pytest.raises(ValueError, match="run_as_owner: 'yes' is neither True nor False"):
            kind(task_id="a", run_as_owner="yes")

    @pytest.mark.parametrize("rendered", ["", None, "None", " ", "ann@X", "/home/ann", "a b"])
    def test_a_template_that_gives_no_name_is_refused(self, rendered: Optional[str]) -> None:
        """Else the job would run as the service."""
        one = task(proxy_user="{{ params.user }}")
        one.proxy_user = rendered
        with pytest.raises(SiteError, match="the task's proxy_user is"):
            requested_user(one)

    @pytest.mark.parametrize("kind", [TonyOperator, TonySensor])
    @pytest.mark.parametrize("given", [None, ""])
    def test_an_argument_that_is_given_has_to_name_a_user(self, kind: Any, given: Any) -> None:
        with pytest.raises(SiteError, match="the task's proxy_user is"):
            requested_user(kind(task_id="a", proxy_user=given))
        with pytest.raises(ValueError, match="both name the user"):
            kind(task_id="a", proxy_user=given, run_as_owner=True)

    @pytest.mark.parametrize("kind", [TonyOperator, TonySensor])
    @pytest.mark.parametrize("by_kwargs", [False, True])
    def test_each_of_a_mapped_task_has_to_name_a_user(self, kind: Any, by_kwargs: bool) -> None:
        """``None`` from an upstream task, say: as a worker makes the operator of a map index."""
        users = ["ann", None, "", "bob"]
        with DAG("dag", schedule=None) as dag:
            for name, more in (("users", {}), ("none", {"scheduler": "local"})):
                partial = kind.partial(task_id=name, **more)
                if name == "none":
                    partial.expand(**{"executes" if kind is TonyOperator else "name": ["a", "b"]})
                elif by_kwargs:
                    partial.expand_kwargs([{"proxy_user": user} for user in users])
                else:
                    partial.expand(proxy_user=users)
        # What the scheduler keeps of the DAG; a worker parses the file itself.
        assert set(DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_dict) == {
            "users",
            "none",
        }

        def asked(task_id: str, map_index: int) -> Any:
            context: Any = {"ti": SimpleNamespace(map_index=map_index), "params": {}}
            mapped: Any = dag.task_dict[task_id]
            found, _ = mapped._expand_mapped_kwargs(context)
            return requested_user(mapped.unmap(found))

        assert [asked("users", 0), asked("users", 3), asked("none", 1)] == ["ann", "bob", None]
        for map_index in (1, 2):
            with pytest.raises(SiteError, match="the task's proxy_user is"):
                asked("users", map_index)

    @pytest.mark.parametrize("how", ["given", "overridden", "mapped"])
    def test_a_decorated_function_that_names_no_user(self, how: str) -> None:
        with DAG("dag", schedule=None) as dag:
            decorated = tony_task(train, scheduler="yarn")
            decorated().operator.task_id  # noqa: B018
            if how == "given":
                tony_task(train, proxy_user=None, task_id="users")()
            elif how == "overridden":
                decorated.override(proxy_user=None, task_id="users")()
            else:
                tony_task(train, proxy_user=None, task_id="users").expand(day=["monday"])
        assert set(DagSerialization.to_dict(dag)["dag"]) > {"tasks"}
        context: Any = {"ti": SimpleNamespace(map_index=0), "params": {}}
        one: Any = dag.task_dict["users"]
        if how == "mapped":
            one = one.unmap(one._expand_mapped_kwargs(context)[0])
        assert requested_user(dag.task_dict["train"]) is None
        with pytest.raises(SiteError, match="the task's proxy_user is"):
            requested_user(one)

    @pytest.mark.parametrize(
        ("owner", "message"),
        [
            ("airflow", "the task has no owner .airflow is Airflow's default"),
            ("ann, bob", "the task's owner is 'ann, bob', and a job runs as one user"),
            ("Data Team", "the task's owner is 'Data Team', which is no user's short name"),
        ],
    )
    def test_owners_that_are_no_user(self, owner: str, message: str) -> None:
        with pytest.raises(SiteError, match=message):
            requested_user(task(owner=owner, run_as_owner=True))

    def test_the_task_comes_before_the_connection(self, connect: Connect) -> None:
        connect(extra={"scheduler": "yarn", **LOGIN, "proxy_user": "ann"})
        assert open_hook(task()).site.proxy_user == "ann"
        bobs = open_hook(task(owner="bob", run_as_owner=True)).site
        assert bobs.env({})[PROXY_USER] == "bob"
        assert open_hook(task(proxy_user="bob")).site == bobs

    @pytest.mark.parametrize("own", ["ann", None])
    def test_a_connection_that_lets_no_task_choose(
        self, connect: Connect, own: Optional[str]
    ) -> None:
        connect(extra={"scheduler": "yarn", **LOGIN, "proxy_user": own, "proxy_user_final": True})
        assert open_hook(task()).site.proxy_user == own
        with pytest.raises(SiteError, match="lets no task choose the user") as caught:
            open_hook(task(proxy_user="bob"))
        assert (own or "those of its own login") in str(caught.value)
        with pytest.raises(SiteError, match="lets no task choose the user"):
            TonyHook(proxy_user="bob").site  # noqa: B018
        if own:
            assert open_hook(task(proxy_user=own)).site.proxy_user == own

    def test_the_page_acts_for_whom_the_task_did(self, connect: Connect) -> None:
        extra: Dict[str, Any] = {"scheduler": "yarn", **LOGIN}
        named = {"connection": connect(extra=extra), "scheduler": "yarn", "proxy_user": "ann"}
        assert site_for(named, TonyHook.get_connection).proxy_user == "ann"
        assert site_for({**named, "proxy_user": "a b"}, TonyHook.get_connection).proxy_user is None
        connect(extra={**extra, "proxy_user_final": True})
        with pytest.raises(SiteError, match="lets no task choose"):
            site_for(named, TonyHook.get_connection)


class TestTheEmbeddedScheduler:
    def test_it_acts_for_no_user(self, tony_home: Path) -> None:
        message = "the embedded scheduler runs every job as this process's own user"
        with pytest.raises(AirflowFailException, match=message):
            operator(proxy_user="ann").execute(Instance().context())

    @pytest.mark.parametrize("value", ["ann", ""])
    def test_nor_by_the_variable(
        self, value: str, monkeypatch: pytest.MonkeyPatch, tony_home: Path
    ) -> None:
        monkeypatch.setenv(PROXY_USER, value)
        with pytest.raises(AirflowFailException, match=f"{PROXY_USER} is '{value}', and the emb"):
            operator().execute(Instance().context())

    def test_a_connections_own_user(self, connect: Connect) -> None:
        name = connect("prod", extra={"scheduler": "yarn", **LOGIN, "proxy_user": "ann"})
        with pytest.raises(SiteError, match="cannot act for ann"):
            TonyHook(name, scheduler="local").site  # noqa: B018


class TestTheTicketOfAirflow:
    @pytest.fixture
    def ticket(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """What ``airflow kerberos`` has written."""
        path = tmp_path / "ccache"
        path.write_bytes(cache(4, CREDENTIALS))
        monkeypatch.setenv("AIRFLOW__KERBEROS__CCACHE", str(path))
        return path

    def test_it_counts_where_nothing_else_is_named(self, ticket: Path) -> None:
        assert Site("yarn").env({})["KRB5CCNAME"] == str(ticket)
        assert Site("yarn").env({"KRB5CCNAME": "FILE:/x"})["KRB5CCNAME"] == "FILE:/x"
        assert "KRB5CCNAME" not in Site("yarn", principal="a@X", keytab="/a").env({})
        ticket.unlink()
        assert Site("yarn").env({}) == {}

    def test_where_airflow_uses_kerberos_it_is_named_before_it_exists(
        self, ticket: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__SECURITY", "kerberos")
        ticket.unlink()
        assert find_ticket_cache({}) == str(ticket)

    @pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
    def test_another_users_is_not_used(self, ticket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It lies in /tmp by default."""
        os.chown(ticket, 12345, 12345)
        assert find_ticket_cache({}) == ""
        monkeypatch.setenv("AIRFLOW__CORE__SECURITY", "kerberos")
        with pytest.raises(SiteError, match=r"is another user's .uid 12345.*ccache"):
            find_ticket_cache({})

    def test_by_default_there_is_none(self) -> None:
        assert logins.conf.get("kerberos", "ccache") == "/tmp/airflow_krb5_ccache"


class TestTheConnectionsKeytab:
    """The author of a DAG gets it by no argument of the operator."""

    @pytest.fixture
    def keytab(self, tmp_path: Path) -> Path:
        folder = tmp_path / "etc"
        folder.mkdir()
        (folder / "gateway.keytab").write_bytes(KEYTAB)
        return folder / "gateway.keytab"

    def refusal(self, **arguments: Any) -> str:
        with pytest.raises(AirflowFailException) as caught:
            operator(**arguments).execute(Instance().context())
        return str(caught.value)

    @pytest.mark.parametrize("key", ["tony.kerberos.principal", "tony.kerberos.keytab"])
    @pytest.mark.parametrize("how", ["conf", "job file", "text"])
    def test_a_job_names_no_login(
        self, key: str, how: str, keytab: Path, tmp_path: Path, tony_home: Path
    ) -> None:
        pairs = {"tony.kerberos.principal": "ann@EXAMPLE", "tony.kerberos.keytab": str(keytab)}
        message = self.refusal(**spelled(how, pairs, tmp_path))
        assert key in message and "names no login of its own" in message

    @pytest.mark.parametrize("how", ["conf", "job file", "text"])
    def test_a_job_ships_none(self, how: str, tmp_path: Path, tony_home: Path) -> None:
        message = self.refusal(**spelled(how, {logins.SHIP_KEYTAB: "true"}, tmp_path))
        assert logins.SHIP_KEYTAB in message

    def test_shipping_is_refused_by_the_setting_itself(self) -> None:
        """Whether or not this version knows the key."""
        for value in ("true", "TRUE", "yes", "1", " on "):
            one = SimpleNamespace(key=logins.SHIP_KEYTAB, value=value, source="--conf")
            with pytest.raises(JobError, match="stays on this machine"):
                logins.refuse_own_login(Described(one))  # type: ignore[arg-type]
        for value in ("false", "", "False"):
            one = SimpleNamespace(key=logins.SHIP_KEYTAB, value=value, source="default")
            logins.refuse_own_login(Described(one))  # type: ignore[arg-type]

    @pytest.mark.parametrize("where", ["resource", "role", "am", "src_dir", "classpath", "archive"])
    def test_a_job_takes_none_along(
        self, where: str, keytab: Path, tmp_path: Path, tony_home: Path
    ) -> None:
        """Of this connection or of any other: its form is enough."""
        link = tmp_path / "data.csv"
        link.symlink_to(keytab)
        arguments: Dict[str, Any] = {
            "resource": {"files": [str(link)]},
            "role": {"roles": {"worker": {**ONE_WORKER["worker"], "resources": str(link)}}},
            "am": {"conf": {"tony.am.resources": str(link)}},
            "src_dir": {"src_dir": str(keytab.parent)},
            "classpath": {"hdfs_classpath": f"{keytab.parent}/*"},
            "archive": {"files": [f"{keytab}::x#archive"]},
        }[where]
        assert "is a keytab of this machine" in self.refusal(**arguments)
        assert not list(tony_home.glob("apps/*"))

    @pytest.mark.parametrize("render", [True, False])
    def test_it_is_no_job_file(self, render: bool, keytab: Path, tony_home: Path) -> None:
        one = operator(conf_file=str(keytab), render_conf_file=render)
        one.render_template_fields({"ti": Instance()})
        assert one.conf_file == str(keytab), "nothing of it is stored"
        with pytest.raises(AirflowFailException) as caught:
            one.execute(Instance().context())
        assert "key!" not in str(caught.value)
        assert ("it is a keytab" in str(caught.value)) is render


class Described:
    """A job as far as its settings are read."""

    def __init__(self, *settings: Any) -> None:
        self.settings = settings

    def setting(self, key: str) -> Any:
        return next((one for one in self.settings if one.key == key), None)


def spelled(how: str, pairs: Dict[str, str], folder: Path) -> Dict[str, Any]:
    """The arguments of an operator that set these keys."""
    if how == "conf":
        return {"conf": pairs}
    body = "".join(
        f"<property><name>{name}</name><value>{text}</value></property>"
        for name, text in pairs.items()
    )
    text = f"<configuration>{body}</configuration>"
    if how == "text":
        return {"conf_file": text}
    (folder / "tony.xml").write_text(text)
    return {"conf_file": str(folder / "tony.xml")}


def test_a_missing_ticket_is_tried_again_and_other_refusals_are_not() -> None:
    missing = NotLoggedIn("the ticket has expired", has_expired=True)
    assert isinstance(errors.as_airflow(missing), AirflowException)
    assert not isinstance(errors.as_airflow(missing), AirflowFailException)
    assert isinstance(errors.as_airflow(LastingRefusal("no queue")), AirflowFailException)
