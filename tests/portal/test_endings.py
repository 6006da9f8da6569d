"""Who may end which job, and as whom the scheduler is asked."""

from __future__ import annotations

from typing import Callable, Iterator, List, Mapping, Tuple

import pytest

from tests.client.scripted import APP, status
from tests.portal.scripted import ROW, Listed, Opened, Portal
from tony_core.hadoop.identity import PROXY_USER
from tony_core.portal import endings
from tony_core.portal.endings import Endings, NotEnded, describe_ending
from tony_core.portal.index.rows import JobRow
from tony_core.portal.viewer import Viewer
from tony_core.schedulers.port import AppState

ANN, EVE = Viewer("ann"), Viewer("eve", frozenset({"ann"}))
ADMIN = Viewer("boss", is_admin=True)

Made = Tuple[Endings, Listed, List[str], List[Mapping[str, str]]]
Make = Callable[..., Made]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    portals: List[Portal] = []

    def build(name: str, is_for_many: bool, own: str = "portal", at_cluster: str = "ann") -> Made:
        scheduler = Listed(status())
        scheduler.user = at_cluster
        opened = Opened(monkeypatch, **{name: scheduler})
        portal = Portal(name, is_for_many=is_for_many)
        portals.append(portal)
        portal.list()
        audited: List[str] = []

        def audit(result: str, viewer: Viewer, row: JobRow, text: str) -> None:
            audited.append(describe_ending(result, viewer, row, text))

        monkeypatch.setattr(endings, "user_name", lambda uid: own)
        made = Endings(portal.pool, portal.live, is_for_many, audit)
        return made, scheduler, audited, opened.envs

    yield build
    for portal in portals:
        portal.close()


def test_the_owner_ends_it_and_is_asked_for_by_name(make: Make) -> None:
    made, scheduler, audited, envs = make("yarn", True)
    assert made.may_end(ANN, ROW)
    assert made.end_job(ANN, ROW) == f"{APP} has ended"
    assert scheduler.killed == [(APP, "ended by ann in the portal")]
    assert {env.get(PROXY_USER) for env in envs[1:]} == {"ann"}, "the first is the list's"
    assert audited == [
        f"end-job result=ended viewer=ann app={APP} owner=ann location=main: {APP} has ended"
    ]


@pytest.mark.parametrize("viewer", [EVE, Viewer("Ann"), Viewer("portal"), Viewer("root")])
def test_no_other_viewer_does(make: Make, viewer: Viewer) -> None:
    made, scheduler, audited, _ = make("yarn", True)
    assert not made.may_end(viewer, ROW)
    with pytest.raises(NotEnded, match="is ann's, and you are"):
        made.end_job(viewer, ROW)
    assert scheduler.killed == [] and "result=refused" in audited[0]


def test_an_administrator_ends_anothers_job_as_himself_where_the_cluster_lets_him(
    make: Make,
) -> None:
    made, scheduler, audited, envs = make("yarn", True)
    assert made.may_end(ADMIN, ROW)
    assert made.end_job(ADMIN, ROW) == f"{APP} has ended"
    assert scheduler.killed == [(APP, "ended by boss in the portal")]
    assert {env.get(PROXY_USER) for env in envs[1:]} == {"boss"}, "never the owner, nor the portal"
    assert "viewer=boss" in audited[0] and "owner=ann" in audited[0]


def test_an_administrator_of_the_portal_is_none_of_the_cluster(make: Make) -> None:
    made, scheduler, audited, _ = make("yarn", True)
    scheduler.set(view_refusal="the cluster does not show it to boss")
    assert not made.may_end(ADMIN, ROW)
    scheduler.unreachable = "boss cannot perform operation MODIFY_APP"
    with pytest.raises(NotEnded, match="MODIFY_APP"):
        made.end_job(ADMIN, ROW)
    assert scheduler.killed == [] and "result=failed" in audited[0]


@pytest.mark.parametrize(
    ("acl", "may"),
    [("eve", True), ("*", True), (" ann", True), ("bob,eve staff", True),
     ("", False), ("bob ops", False), ("ann", False), (" eve", False)],
)  # fmt: skip
def test_whom_the_jobs_list_names_ends_it_as_himself(make: Make, acl: str, may: bool) -> None:
    """EVE is in the group ann."""
    made, scheduler, audited, envs = make("yarn", True)
    assert made.may_end(EVE, ROW, lambda: acl) is may
    if may:
        assert made.end_job(EVE, ROW, lambda: acl) == f"{APP} has ended"
        assert {env.get(PROXY_USER) for env in envs[1:]} == {"eve"}
        assert "viewer=eve" in audited[0] and "owner=ann" in audited[0]
    else:
        with pytest.raises(NotEnded, match="is ann's, and you are eve"):
            made.end_job(EVE, ROW, lambda: acl)
        assert scheduler.killed == []


def test_a_list_is_read_only_where_it_decides(make: Make) -> None:
    def fail() -> str:
        raise AssertionError("it was read")

    made, scheduler, _, _ = make("yarn", True)
    assert made.may_end(ANN, ROW, fail) and made.may_end(ADMIN, ROW, fail)
    scheduler.set(view_refusal="the cluster does not show it to eve")
    assert not made.may_end(EVE, ROW, lambda: "eve"), "the cluster decides"
    own, _, _, _ = make("yarn", False, own="ann")
    assert not own.may_end(EVE, ROW, fail), "a portal for its own user acts for no other"
    embedded, _, _, _ = make("local", True, own="ann")
    assert not embedded.may_end(EVE, ROW, fail)


def test_a_folder_with_the_id_of_another_users_job_ends_nothing(make: Make) -> None:
    made, scheduler, _, _ = make("yarn", True)
    eves = ROW._replace(owner="eve")
    assert not made.may_end(EVE, eves)
    with pytest.raises(NotEnded, match="no scheduler of this portal lists"):
        made.end_job(EVE, eves)
    assert scheduler.killed == []


def test_a_job_that_has_become_another_users(make: Make) -> None:
    made, scheduler, _, _ = make("yarn", True)
    scheduler.owners[APP] = "eve"  # since it was listed
    with pytest.raises(NotEnded, match="knows no job"):
        made.end_job(ANN, ROW)
    assert scheduler.killed == []


def test_no_button_where_the_cluster_refuses_the_portal(make: Make) -> None:
    made, scheduler, _, _ = make("yarn", True)
    scheduler.unreachable = "portal is not allowed to act for ann"
    assert not made.may_end(ANN, ROW)
    scheduler.unreachable = None
    assert not made.may_end(ANN, ROW), "the answer holds for a minute"
    made._now = lambda: 1e9
    assert made.may_end(ANN, ROW)


def test_a_refusal_is_the_sentence_and_in_the_log(make: Make) -> None:
    made, scheduler, audited, _ = make("yarn", True)
    scheduler.unreachable = "ann may not end it"
    with pytest.raises(NotEnded, match="ann may not end it"):
        made.end_job(ANN, ROW)
    assert "result=failed" in audited[0]


def test_one_that_has_ended_meanwhile(make: Make) -> None:
    made, scheduler, _, _ = make("yarn", True)
    scheduler.set(state=AppState.SUCCEEDED)
    assert made.end_job(ANN, ROW) == f"{APP} had ended already"
    assert scheduler.killed == []


def test_a_portal_for_its_own_user(make: Make) -> None:
    """The cluster may know him by another name than this machine does."""
    made, scheduler, _, envs = make("yarn", False, own="anna", at_cluster="ann")
    assert made.may_end(Viewer("anna"), ROW)
    assert not made.may_end(Viewer("root", is_admin=True), ROW)
    assert not made.may_end(ANN, ROW)
    made.end_job(Viewer("anna"), ROW)
    assert len(scheduler.killed) == 1
    assert all(PROXY_USER not in env for env in envs)
    other, _, _, _ = make("yarn", False, own="anna", at_cluster="svc")
    assert not other.may_end(Viewer("anna"), ROW)


@pytest.mark.parametrize("is_for_many", [True, False])
def test_the_embedded_scheduler_is_for_its_user(make: Make, is_for_many: bool) -> None:
    made, scheduler, _, envs = make("local", is_for_many, own="ann")
    assert made.may_end(ANN, ROW) and not made.may_end(ADMIN, ROW)
    made.end_job(ANN, ROW)
    assert len(scheduler.killed) == 1 and all(PROXY_USER not in env for env in envs)
    other, scheduler, _, _ = make("local", is_for_many, own="portal")
    assert not other.may_end(ANN, ROW) and not other.may_end(Viewer("portal"), ROW)


def test_the_line_of_the_log_is_one_line(make: Make) -> None:
    from tony_core.portal.access.access_log import escaped

    row = ROW._replace(app_id="a\nb", location="x y")
    assert "\n" not in escaped(describe_ending("ended", ANN, row, "\r\n\x1b[2J"))
