"""The whole portal before a shared location: no page, of those there are or will be, shows a viewer
a job that he may not see. Owners are the files' real owners."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Tuple

import pytest

from tests.portal.access.running import Running, running
from tests.portal.histories import app, write_job
from tests.second_user import needs_root
from tony_core.portal.assembly import Portal, assemble
from tony_core.portal.settings import HistoryLocation, Login, Settings

pytestmark = needs_root

ANN, EVE = 64301, 64302
MARK = "quince"  # stands in everything of ann's jobs, and nowhere else
PRIVATE, SHARED, FORGED = app(1), app(2), app(3)
TASKS = [{"task": "worker:0", "state": "FAILED", "message": MARK, "host": MARK}]
EVENTS = [{"n": 1, "at": 1.0, "kind": "note", "text": MARK, "weight": "info"}]
CONFIG = (
    "<configuration><property><name>tony.application.name</name>"
    f"<value>{MARK}</value></property></configuration>"
)


class Site(NamedTuple):
    portal: Running
    parts: Portal
    root: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """ann's private job, one that she shows to bob and to the group ml, and what eve forged."""
    folder = tmp_path_factory.mktemp("site")
    root = folder / "history"
    hers: Dict[str, Any] = {
        "name": MARK, "queue": MARK, "tags": [MARK], "framework": MARK, "error": MARK,
        "user": "eve", "state": "FAILED",
    }  # fmt: skip
    more: Mapping[str, Any] = {"tasks": TASKS, "events": EVENTS, "config": CONFIG}
    give(write_job(root, PRIVATE, **hers, **more), ANN)
    give(write_job(root, SHARED, **hers, view_acl="bob ml", **more), ANN)
    # eve's file names ann as the user, and every reader she can think of.
    forged = write_job(root, FORGED, name="forged", user=str(ANN), view_acl="*")
    give(forged, EVE)
    settings = Settings(
        locations=(HistoryLocation("shared", str(root)),),
        index_folder=str(folder / "index"),
        admins=("boss", "%ops"),
        login=Login(by="header", header="x-user", groups_header="x-groups", trusted=("127.0.0.1",)),
        access_log=str(folder / "log"),
    )
    parts = assemble(settings)
    try:
        assert parts.scanner.wait_until_read(60)
        with running(settings, parts.app) as portal:
            made = Site(portal, parts, root)
            ask(made, "/", "boss")  # its worker thread stays
            yield made
    finally:
        parts.close()


def give(folder: Path, uid: int) -> None:
    for path in (folder, *folder.iterdir()):
        os.chown(path, uid, uid)


def ask(site: Site, path: str, user: str, groups: str = "") -> Tuple[int, str]:
    answer = site.portal.ask(path, headers=[("X-User", user), ("X-Groups", groups)])
    return answer.status, answer.text


def addresses(site: Site, app_id: str) -> List[str]:
    """Every address that the application answers, about that job."""
    known = {"app_id": app_id, "task": "worker:0", "name": "stdout", "stream": "stdout"}
    found = []
    for route in site.parts.app.routes:
        path = str(getattr(route, "path", ""))
        if "GET" in (getattr(route, "methods", None) or ()):
            for name in re.findall(r"\{(\w+)(?::\w+)?\}", path):
                path = re.sub(rf"\{{{name}(:\w+)?\}}", known.get(name, "x"), path)
            found.append(path)
    assert len(found) > 15
    queries = (f"?q={MARK}", f"?job={app_id}&job={FORGED}", f"?tag={MARK}&pipeline={MARK}")
    queries += (f"?user={ANN}", f"?location=shared&queue={MARK}")
    of_one = [path for path in found if app_id in path]
    of_all = [path for path in found if app_id not in path and "static" not in path]
    return [*of_one, *of_all, *(path + query for path in of_all for query in queries)]


def of_nothing(text: str) -> str:
    """The same with a job, an owner and a word that there are not."""
    for one, other in ((PRIVATE, app(7)), (str(ANN), "64399"), (MARK, "medlar")):
        text = text.replace(one, other)
    return text


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        ("eve", "ml2, Ml, ML"),
        (str(EVE), ""),
        ("mallory", f"{ANN},boss,ann"),
        ("Boss", "%ops"),
    ],
)
def test_a_private_job_is_as_one_that_is_not_there(site: Site, user: str, groups: str) -> None:
    """Each answer, the status too, is that to the same question about nothing."""
    for path in addresses(site, PRIVATE):
        status, text = ask(site, path, user, groups)
        assert status < 500, (path, text)
        expected = ask(site, of_nothing(path), user, groups)
        assert (status, of_nothing(text)) == expected, path
    listed = ask(site, "/api/jobs", user, groups)[1]
    assert PRIVATE not in listed and MARK not in listed
    assert FORGED in listed, "what is shown to all is there"


@pytest.mark.parametrize(
    ("user", "groups", "sees"),
    [
        (str(ANN), "", {PRIVATE, SHARED, FORGED}),
        ("bob", "", {SHARED, FORGED}),
        ("carl", "x,ml", {SHARED, FORGED}),
        ("ml", "bob", {FORGED}),
        ("boss", "", {PRIVATE, SHARED, FORGED}),
        ("carl", "ops", {PRIVATE, SHARED, FORGED}),
    ],
)
def test_who_sees_what(site: Site, user: str, groups: str, sees: set[str]) -> None:
    listed = ask(site, "/api/jobs", user, groups)[1]
    assert {one for one in (PRIVATE, SHARED, FORGED) if one in listed} == sees
    for app_id in (PRIVATE, SHARED, FORGED):
        status, text = ask(site, f"/jobs/{app_id}/api/job", user, groups)
        assert status == (200 if app_id in sees else 404), (app_id, text)


def test_the_owner_is_that_of_the_files(site: Site) -> None:
    """What is in them is no matter: neither ann's, which name eve, nor eve's, which name ann."""
    text = ask(site, f"/jobs/{FORGED}/api/job", str(ANN))[1]
    assert f'"user":"{EVE}"' in text.replace(" ", "") and f'"user":"{ANN}"' not in text
    text = ask(site, f"/jobs/{PRIVATE}/api/job", str(ANN))[1]
    assert f'"user":"{ANN}"' in text.replace(" ", "")


def test_files_that_change_hands_are_not_shown_under_the_old_name(site: Site) -> None:
    moved = app(9)
    folder = write_job(site.root, moved, name="moved", view_acl="*")
    give(folder, ANN)
    wait_for_owner(site, moved, ANN)
    give(write_job(site.root, moved, name="forged", view_acl="*"), EVE)
    # From now on, and until the index knows it, what eve wrote is not shown as ann's.
    end = time.monotonic() + 60
    while True:
        text = ask(site, f"/jobs/{moved}/api/job", "bob")[1].replace(" ", "")
        assert not ('"forged"' in text and f'"user":"{ANN}"' in text), text
        if '"forged"' in text:
            assert f'"user":"{EVE}"' in text
            break
        assert time.monotonic() < end
        time.sleep(0.1)


def wait_for_owner(site: Site, app_id: str, uid: int) -> None:
    end = time.monotonic() + 60
    while f'"user":"{uid}"' not in ask(site, f"/jobs/{app_id}/api/job", "boss")[1].replace(" ", ""):
        assert time.monotonic() < end
        time.sleep(0.05)
