"""A portal for many users (``gateway``) ends jobs on a secure cluster, each as its own viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator, List, Mapping

import pytest

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
