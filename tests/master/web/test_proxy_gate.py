"""Who may read a page behind a cluster's proxy. (With a real one: test_behind_proxy.py.)"""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any, Dict, FrozenSet, List

import pytest

from tests.fuzzing import fuzz, mutations
from tests.master.reactors import Running
from tests.master.shell import Shell, a_job
from tony_core.job.spec import Program, Resources, Role
from tony_core.master.web import proxy_gate
from tony_core.master.web.proxy_gate import ProxyGate, addresses_of, user_of
from tony_core.master.web.server import Exchange, Response, WebServer
from tony_core.protocol.user_groups import groups_of
from tony_core.schedulers.container_pool import WebProxy

ONE = Role("worker", 1, Resources(), "true")
PROXY = WebProxy(("nowhere.invalid", "127.0.0.1"), "http://rm/proxy/app_1/")


def shell(folder: Path, **changes: Any) -> Shell:
    return Shell(folder, a_job(ONE), context={"proxy": PROXY._replace(**changes)})


def fetch(shell: Shell, user: str = "", path: str = "/api/job", **headers: str) -> Any:
    if user:
        headers["Cookie"] = f"proxy-user={user}"
    return shell.get(path, **headers)


def test_who_is_named() -> None:
    assert user_of("") is None
    assert user_of("a=b; hadoop.auth=x") is None
    assert user_of("proxy-user=ann") == "ann"
    assert user_of("a=b;proxy-user=ann+lee%40SITE ") == "ann lee@SITE"
    assert user_of("proxy-user=ann; proxy-user=bob") == "", "a forger's, perhaps"


@fuzz(
    cookies=mutations(
        b"proxy-user=ann", b"a=b; proxy-user=ann+lee%40SITE; hadoop.auth=u=x&p=y",
        b"proxy-user=%ed%a0%80; proxy-user=",
    )
)  # fmt: skip
def test_damaged_cookies_name_one_user_or_none(cookies: bytes) -> None:
    user = user_of(cookies.decode("latin-1"))
    if user:
        assert b"proxy-user" in cookies
        user.encode()
        groups_of(user)


def test_addresses() -> None:
    assert addresses_of(["127.0.0.1", "no such host", "::ffff:10.0.0.7", "bad..name"]) == {
        "127.0.0.1": {"127.0.0.1"}, "::ffff:10.0.0.7": {"10.0.0.7"},
    }  # fmt: skip


def test_groups_without_a_user() -> None:
    assert groups_of("no such user") == frozenset()
    assert groups_of("root")


def test_owner_list_and_all_others(tmp_path: Path) -> None:
    with shell(tmp_path, view_acl="bob") as made:
        made.launched(1)
        for user, status in {"tester": 200, "bob": 200, "eve": 403, "dr.who": 403, "": 403}.items():
            assert fetch(made, user)[0] == status, user
        text = fetch(made, "eve")[1].decode()
        assert "eve may not read this page" in text and "tester" in text
        assert "does not name the user" in fetch(made)[1].decode()
        assert made.get("/", Cookie="proxy-user=eve; proxy-user=tester")[0] == 403
        for path in ("/", "/logs/worker:0/stdout", "/tensorboard/", "/api/events"):
            assert fetch(made, "eve", path)[0] == 403, path


def test_without_authentication_every_user_is_the_static_user(tmp_path: Path) -> None:
    with shell(tmp_path, static_user="dr.who") as made:
        made.launched(1)
        assert [fetch(made, user)[0] for user in ("dr.who", "", "tester")] == [200] * 3
        assert fetch(made, "eve")[0] == 403


def test_a_list_for_all(tmp_path: Path) -> None:
    with shell(tmp_path, view_acl="*") as made:
        made.launched(1)
        assert [fetch(made, user)[0] for user in ("eve", "")] == [200, 200]


def test_a_star_among_names_is_a_name(tmp_path: Path) -> None:
    """As YARN reads it: its own pages are closed to all others, too."""
    with shell(tmp_path, view_acl="ann,*") as made:
        made.launched(1)
        assert [fetch(made, user)[0] for user in ("ann", "tester", "eve")] == [200, 200, 403]


def test_who_is_not_authenticated_sees_nothing_on_a_secure_cluster(tmp_path: Path) -> None:
    names = ("dr.who", "web")
    with shell(tmp_path, unauthenticated=names, view_acl="dr.who,bob") as made:
        made.launched(1)
        expected = {"tester": 200, "bob": 200, "eve": 403, "dr.who": 403, "web": 403, "": 403}
        for user, status in expected.items():
            assert fetch(made, user)[0] == status, user
        assert b"do not authenticate" in fetch(made, "dr.who")[1]
        assert b"does not name the user" in fetch(made)[1]
        for path in ("/", "/logs/worker:0/stdout", "/tensorboard/", "/api/events"):
            assert fetch(made, "dr.who", path)[0] == fetch(made, "", path)[0] == 403, path


def test_a_list_for_all_is_for_all_authenticated_users_there(tmp_path: Path) -> None:
    with shell(tmp_path, unauthenticated=("dr.who",), view_acl="*") as made:
        made.launched(1)
        found = {user: fetch(made, user)[0] for user in ("eve", "dr.who", "")}
        assert found == {"eve": 200, "dr.who": 403, "": 403}


def test_no_claimed_name_is_believed_on_a_secure_cluster(tmp_path: Path) -> None:
    with shell(tmp_path, unauthenticated=("*",), view_acl="*") as made:
        made.launched(1)
        assert [fetch(made, user)[0] for user in ("tester", "eve", "")] == [403] * 3


def test_groups_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[str] = []
    known: Dict[str, FrozenSet[str]] = {"bob": frozenset(["staff"]), "eve": frozenset(["dev"])}

    def groups(user: str) -> FrozenSet[str]:
        asked.append(user)
        return known.get(user, frozenset())

    monkeypatch.setattr(proxy_gate, "groups_of", groups)
    with shell(tmp_path, view_acl=" staff,ops") as made:
        made.launched(1)
        for _ in range(2):
            assert [fetch(made, user)[0] for user in ("bob", "eve")] == [200, 403]
    assert asked == ["bob", "eve"]


def test_only_the_proxy_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: List[int] = []

    def elsewhere(hosts: List[str]) -> Dict[str, FrozenSet[str]]:
        looked.append(1)
        return {hosts[0]: frozenset(["10.0.0.1"])}

    monkeypatch.setattr(proxy_gate, "addresses_of", elsewhere)
    with shell(tmp_path, view_acl="*") as made:
        made.launched(1)
        status, body, _ = fetch(made, "tester")
        assert status == 403 and PROXY.public_url.encode() in body
        assert fetch(made, "tester")[0] == 403
        assert len(looked) == 1, "not for every stranger"
        monkeypatch.setattr(proxy_gate, "AGAIN_S", 0.0)
        moved = {PROXY.hosts[0]: frozenset(["127.0.0.1"])}
        monkeypatch.setattr(proxy_gate, "addresses_of", lambda hosts: moved)
        assert fetch(made, "tester")[0] == 200, "the proxy moved"


@pytest.mark.parametrize("fails", [["all"], ["rm1"], ["rm2"], ["rm1", "rm2"]])
def test_what_cannot_be_looked_up_again_is_where_it_was(
    fails: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"rm1": frozenset(["10.0.0.1"]), "rm2": frozenset(["10.0.0.2"])}
    gone: List[str] = []

    def look_up(hosts: List[str]) -> Dict[str, FrozenSet[str]]:
        if gone == ["all"]:
            raise OSError("no name server")
        return {host: known[host] for host in hosts if host not in gone}

    monkeypatch.setattr(proxy_gate, "addresses_of", look_up)
    with Running() as running:
        proxy = WebProxy(("rm1", "rm2"), "http://rm")
        gate = ProxyGate(running.reactor, "tester", proxy)

        def tell(exchange: Exchange) -> None:
            found = [number for number in range(4) if gate.is_proxy(f"10.0.0.{number}")]
            exchange.answer(Response(200, bytes(found)))

        server = running.do(
            lambda: WebServer(
                running.reactor,
                "127.0.0.1",
                0,
                lambda exchange: gate._look_up_proxies(exchange, tell),
            )
        )

        def ask() -> List[int]:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=60) as answer:
                return list(answer.read())

        try:
            assert ask() == [1, 2]
            gone += fails
            assert ask() == [1, 2]
            gone.clear()
            known["rm1"] = frozenset(["10.0.0.3"])
            assert ask() == [2, 3], "it moved"
        finally:
            running.do(server.close)


def test_nothing_waits_there_and_links_are_the_proxys(tmp_path: Path) -> None:
    with shell(tmp_path, view_acl="*") as made:
        made.launched(1)
        last = json.loads(fetch(made, path="/api/events")[1])["next"]
        answer = fetch(made, path=f"/api/events?since={last}&wait=30")
        assert json.loads(answer[1]) == {"events": [], "next": last}
        assert json.loads(fetch(made)[1])["links"]["page"] == PROXY.public_url
        assert made.pool.page_url.startswith("http://127.0.0.1:"), "the scheduler's own way"
        assert b'data-wait="0"' in fetch(made, path="/")[1]
        status, body, headers = fetch(made, path="/tensorboard")
        assert status == 200 and "Location" not in headers
        assert b'content="0; url=tensorboard/?tensorboardColab=true"' in body


def test_a_client_is_known_by_its_user_agent(tmp_path: Path) -> None:
    with shell(tmp_path, view_acl="*") as made:
        made.launched(1)
        seen: List[int] = []
        made.master.client_seen = lambda: seen.append(1)
        fetch(made, User_Agent="Mozilla/5.0")
        assert not seen
        fetch(made, User_Agent="tony-client/0.1")
        assert seen


def test_the_way_to_tensorboard_is_html(tmp_path: Path) -> None:
    job = a_job(ONE, program=Program(tensorboard_first=True))
    with Shell(tmp_path, job, context={"proxy": PROXY._replace(view_acl="*")}) as made:
        made.launched(1)
        assert b'http-equiv="refresh" content="0' not in fetch(made, path="/")[1]
        made.master._page.tensorboard = ("127.0.0.1", 1)
        assert b'content="0; url=tensorboard/' in fetch(made, path="/")[1]
        assert b'content="0; url=tensorboard/' not in fetch(made, path="/job")[1]


def test_a_lookup_that_breaks_refuses_its_readers_and_the_next_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(hosts: List[str]) -> FrozenSet[str]:
        raise RuntimeError("the resolver broke")

    with shell(tmp_path) as one:
        with monkeypatch.context() as for_now:
            for_now.setattr(proxy_gate, "addresses_of", broken)
            assert fetch(one)[0] == 403
        monkeypatch.setattr(proxy_gate, "AGAIN_S", 0.1)
        time.sleep(0.2)
        assert fetch(one, "tester")[0] == 200
