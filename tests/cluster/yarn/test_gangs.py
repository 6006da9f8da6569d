"""Gangs of unlike roles on unlike nodes, and what a cluster can never give."""

from __future__ import annotations

from typing import Callable, Dict, List

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

#: GPUs are counted on the fixture, there are none to look at.
COUNTED = {"tony.task.gpu-check": "false"}


def test_gpus_on_the_labelled_node_and_servers_on_the_other(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("labels", "gpu", "queues")
    one = tony_on(cluster)
    job = one.submit(
        *("--executes", "sh -c 'test $JOB_NAME = worker || sleep 300'"),
        conf={
            **COUNTED,
            "tony.worker.instances": 2,
            "tony.worker.gpus": 1,
            "tony.worker.memory": "64m",
            "tony.worker.node-label": "gpu",
            "tony.ps.instances": 1,
            "tony.ps.memory": "64m",
        },
    )
    job.ends(0)
    tasks = one.json("status", job.app_id)["tasks"]
    nodes = {task["task"]: task["node"] for task in tasks}
    first, last = (name.partition(":")[0] for name in cluster.node_names)
    assert {nodes["worker:0"].partition(":")[0], nodes["worker:1"].partition(":")[0]} == {last}
    assert nodes["ps:0"].partition(":")[0] == first


def hosts_of(job: Running) -> Dict[str, List[str]]:
    """Where each role's tasks ran."""
    found: Dict[str, List[str]] = {}
    for task in job.tony.json("status", job.app_id)["tasks"]:
        host = task["node"].partition(":")[0]
        found.setdefault(task["task"].partition(":")[0], []).append(host)
    return found


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_cpu_roles_stay_off_the_node_with_gpus_while_the_other_has_room(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("two_nodes", "gpu", "log_aggregation", "bare_environment")
    plain, with_gpus = (name.partition(":")[0] for name in cluster.node_names)
    one = tony_on(cluster)
    roles = {"tony.worker.gpus": 1, "tony.worker.memory": "64m", "tony.worker.instances": 1}
    small = {"tony.ps.instances": 4, "tony.ps.memory": "64m"}
    for _ in range(3):  # a node that is late to report (2.5 s) loses what was asked of it
        fits = one.submit("--executes", "true", conf={**COUNTED, **roles, **small})
        fits.ends(0, 300)
        found = hosts_of(fits)
        assert found["worker"] == [with_gpus]
        if set(found["ps"]) == {plain}:
            break
    else:
        pytest.fail(f"CPU tasks on the node with GPUs each time: {found}")

    # More than the other node has: a preference keeps no task waiting.
    large = {"tony.ps.instances": 3, "tony.ps.memory": "6g"}
    overflows = one.submit("--executes", "true", conf={**COUNTED, **roles, **large})
    overflows.ends(0, 300)
    found = hosts_of(overflows)
    assert found["worker"] == [with_gpus]
    assert set(found["ps"]) == {plain, with_gpus}


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"tony.worker.gpus": 3}, ["6", "GPU", "4"]),
        ({"tony.worker.gpus": 5}, ["5", "GPU", "4"]),
        ({"tony.worker.memory": "1t"}, ["memory", "8192"]),
        ({"tony.worker.vcores": 1000}, ["vcores", "32"]),
        ({"tony.worker.resource.example.com/fpga": 1}, ["example.com/fpga"]),
        ({"tony.yarn.queue": "nowhere"}, ["nowhere"]),
        ({"tony.yarn.queue": "closed"}, ["closed", "stopped"]),
        ({"tony.worker.node-label": "tpu"}, ["tpu", "gpu"]),
        ({"tony.worker.node-label": "reserved"}, ["reserved"]),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_what_can_never_be_granted_is_refused_with_the_numbers(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], conf: dict[str, object], words: list[str]
) -> None:
    cluster = hadoop("labels", "gpu", "queues")
    one = tony_on(cluster)
    job = one.submit(
        *("--executes", "true"),
        conf={**COUNTED, "tony.worker.instances": 2, "tony.worker.memory": "64m", **conf},
    )
    code = job.process.wait(60)
    assert code in (2, 3), job.output_text
    for word in words:
        assert word in job.output_text
    assert "Traceback" not in job.output_text
    assert cluster.applications("RUNNING,ACCEPTED") == []
