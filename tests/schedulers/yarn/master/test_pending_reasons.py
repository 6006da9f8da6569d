"""Why an ask waits, or can never be granted, in words with the numbers."""

from __future__ import annotations

from typing import AbstractSet, Sequence

from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Resources
from tony_core.schedulers.container_pool import ContainerRequest
from tony_core.schedulers.yarn.master.container_requests import ContainerRequests
from tony_core.schedulers.yarn.master.pending_reasons import explain_impossible, explain_pending
from tony_core.schedulers.yarn.master.placement import ClusterNode, ContainerUsage, add_own_usage
from tony_core.schedulers.yarn.placement_constraints import parse_constraint
from tony_core.schedulers.yarn.resources import GPU

KNOWN = ("memory-mb", "vcores", GPU)


def test_what_can_never_be() -> None:
    most = Capability(8192, 32, {GPU: 4})
    assert explain_impossible(Capability(8192, 1), most, KNOWN) == ""
    assert "8193 MB of memory wanted, 8192 there" in explain_impossible(
        Capability(8193, 1), most, KNOWN
    )
    assert "8 GPUs wanted, 4 there" in explain_impossible(Capability(64, 1, {GPU: 8}), most, KNOWN)
    strange = explain_impossible(Capability(64, 1, {"fpga": 1}), most, KNOWN)
    assert "1 fpga, which this cluster does not count" in strange
    assert "it knows memory-mb, vcores, yarn.io/gpu" in strange


def test_what_is_missing_and_what_there_is() -> None:
    requests = ContainerRequests(["ps", "worker"])
    requests.request(ContainerRequest("worker", 0, 2, Resources(1024, 1, 1), "gpu"))
    full = ClusterNode(
        "n0", "/r", Capability(512, 4, {GPU: 0}), Capability(8192, 8, {GPU: 4}), "gpu"
    )
    words = explain_pending(
        requests.outstanding, {"worker": 6}, "root.ml", Capability(512, 4), [full]
    )
    assert words.startswith(
        "6 of 8 worker; 2 x (1024 MB, 1 vcore, 1 GPU) missing with the label gpu"
        " in the queue root.ml; the queue has 512 MB, 4 vcores left for this job"
    )
    assert "no node has room for one: at most 512 MB, 4 vcores, 0 GPUs on one" in words
    assert "no node has the label gpu" in explain_pending(
        requests.outstanding, {}, "q", None, [ClusterNode("n", "/r", Capability(1), Capability(1))]
    )
    assert explain_pending(requests.outstanding, {}, "q", None, []).endswith("in the queue q")


def test_what_no_node_can_hold_is_reported_first() -> None:
    requests = ContainerRequests(["ps", "worker"])
    requests.request(ContainerRequest("ps", 0, 1, Resources(64)))
    requests.request(ContainerRequest("worker", 0, 1, Resources(64, 1, 5)))
    node = ClusterNode("n0", "/r", Capability(512, 4), Capability(8192, 8, {GPU: 4}))
    words = explain_pending(requests.outstanding, {}, "q", None, [node])
    assert "no node is large enough for worker (5 GPUs wanted, 4 there)" in words


GPUS = Capability(8192, 8, {GPU: 2})


def waiting_for_one(nodes: Sequence[ClusterNode], avoided: AbstractSet[str] = frozenset()) -> str:
    requests = ContainerRequests(["worker"])
    requests.request(ContainerRequest("worker", 0, 1, Resources(1024, 1, 2)))
    return explain_pending(requests.outstanding, {"worker": 1}, "q", None, nodes, avoided)


def test_what_this_job_was_given_since_the_last_reports_has_no_room() -> None:
    none_left = Capability(8192, 8, {GPU: 0})
    reported = [ClusterNode("n0", "/r", GPUS, GPUS), ClusterNode("n1", "/r", none_left, GPUS)]
    assert "room for 1 of them" in waiting_for_one(reported)
    ours = Capability(1024, 1, {GPU: 2})
    late = waiting_for_one(add_own_usage(reported, [ContainerUsage("n0", ours, unreported=True)]))
    assert "no node has room for one: at most 8192 MB, 8 vcores, 0 GPUs on one" in late
    counted = add_own_usage(reported, [ContainerUsage("n0", ours, unreported=False)])
    assert "room for 1 of them" in waiting_for_one(counted)
    assert counted[0].available == Capability(7168, 7, {GPU: 0})


def test_avoided_nodes_have_no_room_and_are_named() -> None:
    reported = [
        ClusterNode("n0", "/r", GPUS, GPUS),
        ClusterNode("n1", "/r", Capability(512, 8), GPUS),
    ]
    words = waiting_for_one(reported, {"n0"})
    assert "no node has room for one: at most 512 MB, 8 vcores on one" in words
    assert words.endswith("; avoided after a failure there: n0")
    words = waiting_for_one(reported, {"n0", "n1"})
    assert "every suitable node is avoided" in words
    many = {f"n{at}" for at in range(8)}
    assert words.endswith("n0, n1") and waiting_for_one([], many).endswith("n4 and 3 more")


def test_free_room_is_reported_of_a_suitable_node() -> None:
    """Not of the one with the most memory, which has no GPUs at all."""
    large = Capability(65536, 64, {GPU: 0})
    taken = ClusterNode("n1", "/r", Capability(4096, 4, {GPU: 1}), GPUS)
    words = waiting_for_one([ClusterNode("n0", "/r", large, large), taken])
    assert "no node has room for one: at most 4096 MB, 4 vcores, 1 GPU on one" in words


def test_room_is_not_reported_of_a_request_with_a_constraint() -> None:
    requests = ContainerRequests(["worker"])
    requests.request(
        ContainerRequest("worker", 0, 1, Resources(1024)),
        parse_constraint("NOTIN,NODE,worker"),
        ("worker",),
    )
    node = ClusterNode("n", "/r", Capability(8192, 8), Capability(8192, 8))
    words = explain_pending(requests.outstanding, {"worker": 1}, "q", None, [node])
    assert words == (
        "1 of 2 worker; 1 x (1024 MB, 1 vcore) missing where its placement constraint allows it"
        " in the queue q"
    )
    full = ClusterNode("n", "/r", Capability(512, 8), Capability(8192, 8))
    words = explain_pending(requests.outstanding, {"worker": 1}, "q", None, [full])
    assert words.endswith("; no node has room for one: at most 512 MB, 8 vcores on one")
