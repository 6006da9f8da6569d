"""A staged file that is not any more what it was, when a node comes to fetch it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony, until
from tests.cluster.yarn.test_queues import folder_for, memory, waiting
from tony_core.files import registry
from tony_core.files.port import Stat

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.fixture
def one(hadoop: GetHadoop, tony_on: Callable[..., Tony], monkeypatch: pytest.MonkeyPatch) -> Tony:
    tony = tony_on(hadoop("two_nodes", "bare_environment"))
    monkeypatch.setenv("HADOOP_CONF_DIR", tony.env["HADOOP_CONF_DIR"])
    return tony


@pytest.fixture
def held(one: Tony) -> Iterator[Running]:
    """A job with all the memory there is: the next job has to wait for its master."""
    assert one.cluster is not None
    over = folder_for(one, "held")
    quarter = memory(one.cluster) // 4
    rest: Dict[str, Any] = {  # beside the job's own master
        "tony.rest.instances": 1,
        "tony.rest.memory": f"{quarter - 256}m",
    }
    rest["tony.rest.command"] = (
        f"sh -c 'touch {over}/up-rest; while [ ! -e {over}/over ]; do sleep 0.1; done'"
    )
    job = waiting(one, over, "default", 3, quarter, **rest)
    job.until(lambda: len(list(over.glob("up-*"))) == 4, "the nodes are full")
    yield job
    (over / "over").touch()
    job.ends(0)


def staged(one: Tony, size: int) -> Stat:
    """The object that is about so large."""
    assert one.cluster is not None
    store = f"{one.cluster.default_fs}/user/root/.tony/store/objects"
    files = registry.filesystem(store)
    found = [
        file
        for folder in files.list(store)
        for file in files.list(folder.location)
        if not file.is_dir and size <= file.size < size + 20_000
    ]
    assert len(found) == 1, found
    return found[0]


def test_a_master_whose_job_was_written_to_after_its_submit(
    one: Tony, held: Running, tmp_path: Path
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text("print('never')\n")
    (source / "data").write_bytes(b"\x07" * 1_234_567)
    job = one.submit(
        *("--executes", "python3 train.py", "--src_dir", str(source)),
        conf={"tony.application.framework": "mpi", "tony.worker.instances": "1"},
    )
    until(lambda: one.json("status", job.app_id)["state"] == "ACCEPTED", "it waits")
    object_ = staged(one, 1_234_567)
    files = registry.filesystem(object_.location)
    files.put(object_.location, b"\x08" * object_.size, 0o600)
    (Path(one.folder) / "held" / "over").touch()
    output = job.ends(1)
    assert re.search(
        rf"the copy that was staged at {re.escape(object_.location)} is damaged: it was written"
        r" to after the submit; tony gc --scheduler yarn --verify --remove\S* .*submit again",
        output,
    ), output
    assert "java" not in output.lower(), output
    removed = one("gc", "--verify", "--remove")
    assert object_.location.rsplit("/", 2)[1] in removed.stdout + removed.stderr
    again = one.submit(
        *("--executes", "python3 train.py", "--src_dir", str(source)),
        conf={"tony.application.framework": "mpi", "tony.worker.instances": "1"},
    )
    again.ends(0)
