"""A whole job while the cluster's servers fail over or restart, and on sites of other shapes."""

from __future__ import annotations

import os
import signal
from typing import Callable

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until
from tests.cluster.yarn.training import Training, masters, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def ends_well(one: Tony, training: Training) -> None:
    """It was not disturbed, and says so."""
    training.over()
    training.job.ends(0)
    assert training.undisturbed(), training.lines()
    events = training.job.events()
    assert "root-cause" not in [event["kind"] for event in events]
    assert one.json("status", training.job.app_id)["state"] == "SUCCEEDED"
    until(one.nothing_runs, "no process is left")


def test_another_resource_manager_takes_over(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("rm_ha")
    one = tony_on(cluster)
    training = Training(one)
    job = training.job
    job.until(training.counts, "both count")
    (master,) = masters(job.app_id)
    killed = cluster.kill_active_rm()
    job.until(training.grows(), "they count on")
    job.until(lambda: running(one, job.app_id) == 2, "the client finds the other")
    assert cluster.active_rm() != killed
    assert masters(job.app_id) == [master]
    job.until(training.grows(), "they count on")
    ends_well(one, training)


@pytest.mark.nightly  # by day on a simulated YARN: tests/schedulers/yarn/master/test_many_nodes.py
def test_a_gang_where_names_hold_ports_and_nodes_stand_in_racks(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("racks", "ports_in_names")
    one = tony_on(cluster)
    training = Training(one, workers=6)
    job = training.job
    job.until(training.counts, "all six count")
    nodes = {task["node"] for task in one.json("status", job.app_id)["tasks"]}
    assert nodes <= set(cluster.node_names)
    ends_well(one, training)


def test_the_node_managers_restart_and_the_containers_live_on(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("two_nodes", "nm_recovery")
    one = tony_on(cluster)
    training = Training(one)
    job = training.job
    job.until(training.counts, "both count")
    (master,) = masters(job.app_id)
    for index in range(2):
        cluster.restart_nm(index)
        job.until(training.grows(), "they count on")
    assert masters(job.app_id) == [master]
    ends_well(one, training)


@pytest.mark.nightly
@pytest.mark.parametrize("disturbed", ["rm_ha", "nm_recovery"])
def test_what_is_lost_after_it_is_replaced(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], disturbed: str
) -> None:
    """Containers are asked of the ResourceManager that took over, and of restarted nodes."""
    cluster = hadoop(*(("rm_ha",) if disturbed == "rm_ha" else ("two_nodes", "nm_recovery")))
    one = tony_on(cluster)
    training = Training(one, **{"tony.am.retry-count": 0})
    job = training.job
    job.until(training.counts, "both count")
    if disturbed == "rm_ha":
        cluster.kill_active_rm()
    else:
        cluster.restart_nm(0)
        cluster.restart_nm(1)
    training.lose_container("worker-1")
    job.until(lambda: training.counts("1"), "a second session")
    training.over()
    job.ends(0)
    until(one.nothing_runs, "no process is left")


def test_another_name_node_takes_over(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    """The journal, the master's address and history are with whichever is active."""
    cluster = hadoop("nn_ha")
    one = tony_on(cluster)
    training = Training(one)
    job = training.job
    job.until(training.known_as_running, "both count, and YARN knows")
    active = cluster.fail_over_hdfs()
    job.until(training.grows(), "they count on")
    cluster.kill(next(name for name in cluster.names("nn") if name != active))
    (first,) = masters(job.app_id)
    os.kill(first, signal.SIGKILL)
    job.until(lambda: masters(job.app_id) not in ([], [first]), "the next master")
    job.until(
        lambda: one.json("status", job.app_id)["attempt"] == 2 and running(one, job.app_id) == 2,
        "it has taken the tasks over",
    )
    job.until(training.grows(), "they count on")
    ends_well(one, training)
