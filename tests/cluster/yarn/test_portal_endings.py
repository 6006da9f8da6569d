"""A portal for many users (``gateway``) ends jobs on a secure cluster, each as its own viewer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Iterator, List, Mapping

import httpx
import pytest

from tests.cli.processes import Running
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until
from tests.portal.real_jobs import RealPortal
from tony_core.portal.endings import Endings, NotEnded
from tony_core.portal.index.rows import JobRow
from tony_core.portal.live_jobs import LIVE
from tony_core.portal.viewer import Viewer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch) -> Hadoop:
    made = hadoop("secure", "log_aggregation")
    monkeypatch.setenv("KRB5_CONFIG", made.environment_of("ann")["KRB5_CONFIG"])
    return made


class Service:
    """The portal of a principal, as far as it ends jobs."""

    def __init__(self, env: Mapping[str, str], root: Path) -> None:
        self.lines: List[str] = []
        self._portal = RealPortal("yarn", env, str(root), is_for_many=True)
        self.live = self._portal.live
        self.endings = Endings(self._portal.pool, self.live, True, self._audit)

    def _audit(self, result: str, viewer: Viewer, row: JobRow, text: str) -> None:
        self.lines.append(f"{result} {viewer.name} {row.app_id} {text}")

    def row(self, app_id: str, owner: str) -> JobRow:
        """The job as this portal lists it."""
        job = until(lambda: self.live.job(app_id, owner), f"{app_id} on the list")
        found: JobRow = job.row()
        assert found.location == f"{LIVE}yarn"
        return found

    def close(self) -> None:
        self._portal.close()


@pytest.fixture
def service_of(cluster: Hadoop, tmp_path: Path) -> Iterator[Callable[[str], Service]]:
    made: List[Service] = []

    def make(login: str) -> Service:
        made.append(Service(cluster.environment_of(login), tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_each_viewer_ends_his_own(
    cluster: Hadoop, tony_on: Callable[..., Tony], service_of: Callable[[str], Service]
) -> None:
    tony = tony_on(cluster)
    tony.env.update(cluster.environment_of("ann"))
    job = tony.submit("--executes", "sleep 600", conf={"tony.worker.instances": "1"})
    app_id = job.app_id
    ann, bob = Viewer("ann"), Viewer("bob")
    gateway = service_of("gateway")
    row = gateway.row(app_id, "ann")
    assert gateway.endings.may_end(ann, row)
    assert not gateway.endings.may_end(bob, row)
    # Even a row that gives it to bob: YARN itself knows whose it is.
    assert not gateway.endings.may_end(bob, row._replace(owner="bob"))
    with pytest.raises(NotEnded):
        gateway.endings.end_job(bob, row._replace(owner="bob"))

    # bob's portal may act for no other user: it has no button, and ends nothing.
    bobs = service_of("bob")
    assert not bobs.endings.may_end(ann, bobs.row(app_id, "ann"))
    with pytest.raises(NotEnded, match="is not allowed to"):
        bobs.endings.end_job(ann, row)
    assert job.process.poll() is None, "it runs on"

    assert gateway.endings.end_job(ann, row) == f"{app_id} has ended"
    job.ends(137)
    assert cluster.application(app_id)["finalStatus"] == "KILLED"
    assert "ended by ann in the portal" in str(tony.json("status", app_id)["diagnostics"])
    until(lambda: not gateway.endings.may_end(ann, row), "no button any more")
    assert [line.split()[:2] for line in gateway.lines] == [["refused", "bob"], ["ended", "ann"]]


SETTINGS = """
[portal]
port = 0
index = {index}
schedulers = yarn
admins = %operators
access-log = {log}
[history shared]
path = {place}
[login]
by = header
header = X-User
groups-header = X-Groups
trusted = 127.0.0.1
"""


class Web:
    """A real portal that serves all users, as a process."""

    def __init__(self, cluster: Hadoop, folder: Path) -> None:
        self.log = folder / "access.log"
        settings = folder / "portal.ini"
        settings.write_text(
            SETTINGS.format(
                index=folder / "index", log=self.log, place=f"{cluster.default_fs}{PLACE}"
            )
        )
        self.process = Running(folder, "portal", "--config", str(settings))
        self.url = ""

    def find_url(self) -> None:
        """Wait until it listens."""
        until(lambda: "the portal is at" in self.process.err, "the portal's URL")
        found = re.search(r"is at (http://[^/]+)/", self.process.err)
        assert found, str(self.process)
        self.url = found[1]

    def get(self, path: str, user: str, groups: str = "") -> httpx.Response:
        who = {"X-User": user, "X-Groups": groups}
        return httpx.get(f"{self.url}/jobs/{path}", headers=who, timeout=60)

    def end(self, app_id: str, token: str, user: str, groups: str = "") -> httpx.Response:
        who = {"X-User": user, "X-Groups": groups}
        url = f"{self.url}/jobs/{app_id}/end"
        return httpx.post(url, headers=who, data={"csrf": token}, timeout=90)


PLACE = "/tmp/history-of-endings"
BUTTON = "End this job"


@pytest.fixture
def web(cluster: Hadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    admin = cluster.hdfs_of("admin")
    admin.make_folder(PLACE)
    admin.give(PLACE, "gateway", "gateway", "1773")
    for name, value in cluster.environment_of("gateway").items():
        monkeypatch.setenv(name, value)
    made = Web(cluster, tmp_path)
    with made.process:
        made.find_url()
        yield made
    admin.delete(PLACE)


def test_through_the_web_by_an_administrator_and_by_whom_the_job_names(
    cluster: Hadoop, tony_on: Callable[..., Tony], web: Web
) -> None:
    """All as bob: with and without the group of the portal's administrators."""
    tony = tony_on(cluster)
    tony.env.update(cluster.environment_of("ann"))

    def submit(**more: str) -> str:
        named = {f"tony.yarn.acl.{name}": value for name, value in more.items()}
        place = {"tony.history.location": f"{cluster.default_fs}{PLACE}"}
        small = {"tony.worker.instances": "1", "tony.worker.memory": "256"}
        return tony.submit("--executes", "sleep 600", conf={**small, **place, **named}).app_id

    def page(app_id: str, groups: str = "") -> str:
        def find() -> str:
            answer = web.get(f"{app_id}/", "bob", groups)
            # From its history, which has its configuration, and running by the cluster.
            ready = answer.status_code == 200 and "Running for" in answer.text
            return answer.text if ready and web.get(f"{app_id}/", "ann").text else ""

        return str(until(find, f"the page of {app_id}"))

    def state(app_id: str) -> str:
        return str(cluster.application(app_id)["finalStatus"])

    named, seen, other = submit(view="bob", modify="bob"), submit(view="bob"), submit(view="bob")

    # Whom the job lets only look has no button, and 403 for what he sends all the same.
    assert BUTTON not in page(seen)
    assert BUTTON in until(
        lambda: BUTTON in page(named) and page(named), "the button of whom the job names"
    )
    question = web.get(f"{named}/end", "bob")
    found = re.search(r'name="csrf" value="([^"]+)"', question.text)
    assert question.status_code == 200 and found, question.text
    token = found[1]
    assert web.get(f"{seen}/end", "bob").status_code == 403
    refused = web.end(seen, token, "bob")
    assert refused.status_code == 403 and "You cannot end this job" in refused.text
    # One whom the job does not show to at all.
    assert web.get(f"{named}/end", "eve").status_code == 404
    assert web.end(named, token, "bob").status_code == 200
    until(lambda: state(named) == "KILLED", "the end of the job that names bob")
    # Into ann's folder bob writes no reason, so only the access log has his name.
    assert "SIGTERM" in str(tony.json("status", named)["diagnostics"])

    # An administrator of the portal is asked for as himself. The cluster does not let him: the
    # job's list does not name him, and he is no administrator of the cluster.
    assert BUTTON in page(seen, "operators")
    refused = web.end(seen, token, "bob", "operators")
    assert refused.status_code == 503 and "The job was not ended" in refused.text
    assert "bob" in refused.text and state(seen) == "UNDEFINED"

    # One whom it lets.
    other_named = submit(view="bob", modify=" users")
    until(lambda: BUTTON in page(other_named, "operators"), "the button of an administrator")
    assert web.end(other_named, token, "bob", "operators").status_code == 200
    until(lambda: state(other_named) == "KILLED", "the end by an administrator")
    assert state(other) == "UNDEFINED", "no other job was touched"
    lines = [line for line in web.log.read_text().splitlines() if "end-job" in line]
    assert [re.findall(r"result=(\w+) viewer=(\w+) app=(\w+) owner=(\w+)", line)[0]
            for line in lines] == [
        ("ended", "bob", named, "ann"),
        ("failed", "bob", seen, "ann"),
        ("ended", "bob", other_named, "ann"),
    ]  # fmt: skip
