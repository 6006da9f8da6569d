"""The whole portal over the embedded scheduler: a job from its submit to its TensorBoard."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest
from starlette.testclient import TestClient

from tests.cluster.yarn.jobs import Tony, until
from tests.portal.fakes import Always, LoggedIn
from tests.portal.test_tensorboard import SERVER
from tony_core.portal import tensorboard
from tony_core.portal.assembly import assemble
from tony_core.portal.settings import HistoryLocation, Settings
from tony_core.portal.viewer import Viewer

pytestmark = pytest.mark.slow

PROGRAM = """
import os, pathlib, sys, time
print("first line", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
folder = pathlib.Path(sys.argv[2], "train")
folder.mkdir(parents=True)
(folder / "events.out.tfevents.1.host").write_bytes(b"x")
(folder / "link-tfevents").symlink_to("/etc/passwd")
print("last line", flush=True)
"""


@pytest.fixture
def client(
    tony_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestClient]:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    monkeypatch.setattr(tensorboard, "_SERVER", str(server))
    (tony_home / "history").mkdir(parents=True, mode=0o700)
    tony_home.chmod(0o700)
    settings = Settings(
        locations=(HistoryLocation("own", str(tony_home / "history")),),
        schedulers=("local",),
        index_folder=str(tmp_path / "index"),
    )
    portal = assemble(settings)
    try:
        app: Any = LoggedIn(portal.app, Always(Viewer(getpass.getuser())))
        with TestClient(app, follow_redirects=False) as made:
            yield made
    finally:
        portal.close()


def test_a_job_as_the_portal_shows_it(
    client: TestClient, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    running = tony_on().submit(
        "--executes",
        f"{program} {tmp_path}/go {tmp_path}/events",
        conf={
            "tony.worker.instances": 1,
            "tony.application.framework": "standalone",
            "tony.application.name": "watched",
            "tony.application.tensorboard-log-dir": str(tmp_path / "events"),
        },
    )
    app_id = running.app_id

    def listed() -> Any:
        rows = client.get("/api/jobs?q=watched").json()["jobs"]
        return [row for row in rows if row["state"] == "RUNNING"]

    (row,) = running.until(listed, "on the list")
    assert (row["app_id"], row["owner"]) == (app_id, getpass.getuser())
    job = f"/jobs/{app_id}"

    def follows() -> bool:
        answer = client.get(f"{job}/logs/worker:0/stdout?offset=0")
        return answer.text == "first line\n" and answer.headers["X-Tony-Over"] == "0"

    running.until(follows, "the first line")

    def runs() -> bool:
        (task,) = client.get(f"{job}/api/tasks").json()["tasks"]
        return bool(task["state"] == "running")

    running.until(runs, "its task on the page, which may be a second older than its log")
    assert client.get(f"{job}/api/job").json()["problems"] == []
    assert client.get(f"{job}/api/metrics").status_code == 200
    (tmp_path / "go").touch()
    running.ends(0)

    def ended() -> bool:
        (row,) = client.get("/api/jobs?q=watched").json()["jobs"]
        return bool(row["state"] == "SUCCEEDED" and row["location"] == "own")

    until(ended, "its end on the list")
    answer = client.get(f"{job}/logs/worker:0/stdout?offset=-10")
    assert (answer.text, answer.headers["X-Tony-Over"]) == ("last line\n", "1")
    assert client.get(f"{job}/log/worker:0/stdout").status_code == 200

    page = f"{job}/tensorboard"
    assert f'href="{page}"' in client.get(f"{job}/").text
    assert client.post(page).status_code == 303

    def ready() -> Any:
        found = client.get(f"{job}/api/tensorboard").json()
        assert found["state"] != "failed", found["message"]
        return found["url"]

    url = until(ready, "its TensorBoard")
    shown = httpx.get(url.replace("testserver", "127.0.0.1")).json()
    assert shown["events"] == ["train"]
