"""Logs on a real cluster: while they are written, while they move into HDFS, and afterwards."""

from __future__ import annotations

import time
from typing import Callable, Iterator, List

import pytest

from tests.cluster.hadoop.cluster import ENDED, Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.test_hadoop_base import SMALL
from tests.cluster.yarn.jobs import until
from tony_core.client.logs import read_logs
from tony_core.schedulers.port import LogRef, SchedulerError
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler

pytestmark = pytest.mark.cluster

KINDS = [
    ("3.4.2", "log_aggregation"),
    pytest.param("3.4.2", "indexed_logs", marks=pytest.mark.nightly),
    pytest.param("3.3.6", "log_aggregation", marks=pytest.mark.nightly),
    pytest.param("3.3.6", "indexed_logs", marks=pytest.mark.nightly),
]
LINE = "a line of a log that goes on and on\n"


@pytest.fixture
def yarn() -> Iterator[Callable[[Hadoop], YarnScheduler]]:
    made: List[YarnScheduler] = []

    def make(cluster: Hadoop) -> YarnScheduler:
        environment = {"HADOOP_CONF_DIR": str(cluster.conf_dir), "HADOOP_USER_NAME": cluster.user}
        made.append(YarnScheduler(environment))
        return made[-1]

    yield make
    for one in made:
        one.close()


def submit(cluster: Hadoop, command: str, attempts: int = 1) -> str:
    """An application that is only a master, and that only a shell command."""
    text = f"({command}) 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"
    return cluster.submit(
        application_name="logs",
        am_container_spec={"commands": {"command": text}},
        max_app_attempts=attempts,
        resource=SMALL,
    )


def moved(cluster: Hadoop, app_id: str) -> bool:
    return cluster.application(app_id).get("logAggregationStatus") == "SUCCEEDED"


@pytest.mark.parametrize(("version", "feature"), KINDS)
class TestLogs:
    def test_a_log_is_followed_through_its_move(
        self,
        hadoop: GetHadoop,
        yarn: Callable[[Hadoop], YarnScheduler],
        version: str,
        feature: str,
    ) -> None:
        cluster = hadoop(feature, "two_nodes", version=version)
        scheduler = yarn(cluster)
        app = submit(
            cluster,
            "for i in 0 1 2 3 4 5 6 7 8 9; do seq 1 3000; sleep 0.2; done; echo done >&2; exit 3",
        )
        logs = scheduler.log_reader
        master = until(lambda: logs.list_containers(app), "a master's container")[0][1]
        found, errors = b"", []
        deadline = time.monotonic() + 90
        while not moved(cluster, app):
            assert time.monotonic() < deadline
            for _ in range(20):
                try:
                    found += logs.read_log(app, master, "stdout", len(found), 10_000)
                except SchedulerError as error:
                    errors.append((len(found), str(error)))
        while True:
            data = scheduler.log_reader.read_log(app, master, "stdout", len(found), 10_000)
            if not data:
                break
            found += data
        assert found == b"".join(b"%d\n" % number for number in range(1, 3001)) * 10
        # Before it started no server has it; from then on one always has.
        assert [text for at, text in errors if at] == []
        assert scheduler.log_reader.list_logs(app, master) == [
            "prelaunch.err",
            "prelaunch.out",
            "stderr",
            "stdout",
        ]
        assert scheduler.log_reader.log_size(app, master, "stdout") == len(found)

    def test_all_masters_and_the_end_of_a_large_log(
        self,
        hadoop: GetHadoop,
        yarn: Callable[[Hadoop], YarnScheduler],
        version: str,
        feature: str,
    ) -> None:
        cluster = hadoop(feature, "two_nodes", version=version)
        app = submit(
            cluster,
            f"yes {LINE.strip()} | head -c 36000000; echo from $CONTAINER_ID >&2; exit 3",
            attempts=2,
        )
        cluster.wait_for(app, ENDED)
        until(lambda: moved(cluster, app), "its logs in HDFS")
        scheduler = yarn(cluster)
        names = scheduler.log_reader.list_logs(app, LogRef(""))
        assert {f"master-{n}.{name}" for n in (1, 2) for name in ("stdout", "stderr")} <= set(names)
        for number in (1, 2):
            log = scheduler.log_reader.read_log(app, LogRef(""), f"master-{number}.stderr", 0)
            assert log.startswith(b"from container_")
            assert f"_{number:02d}_000001\n".encode() in log
        assert scheduler.log_reader.log_size(app, LogRef(""), "master-1.stdout") == 36_000_000
        began = time.monotonic()
        lines = list(read_logs(scheduler, app, tasks=["am"], stream="stdout", tail=3))
        assert [line.text for line in lines] == [LINE.strip()] * 6
        assert time.monotonic() - began < 60
