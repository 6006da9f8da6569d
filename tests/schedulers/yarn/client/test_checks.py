"""What is refused before anything is staged, and what will have to wait: with the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedulers.yarn.clusters import job, limits, node, queue, role
from tony_core.hadoop.yarn.messages.reports import QueueStatistics
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Docker, Job, MasterSpec, Mode, Program, Resources, Setting, Tracking
from tony_core.schedulers.yarn.client.checks import find_problems, find_warnings
from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits, _add_path
from tony_core.schedulers.yarn.resources import GPU

GPU_NODE = (node("one"), node("two", gpus=4, labels=("gpu",)))
LABELS = {"gpu": True, "reserved": True}


def one(job: Job, cluster: ClusterLimits) -> str:
    """The only problem."""
    (problem,) = find_problems(job, cluster)
    return problem


def test_an_ordinary_job_has_no_problem() -> None:
    assert find_problems(job(role(instances=4, gpus=1), role("ps", 2)), limits()) == []
    assert find_warnings(job(), limits()) == []


class TestGpus:
    def test_more_than_the_cluster_has(self) -> None:
        assert one(job(role(instances=3, gpus=2)), limits()) == (
            "the job asks for 6 GPUs in all (worker 3 x 2); the cluster has 4 on 1 node"
        )

    def test_the_roles_of_a_gang_are_counted_together(self) -> None:
        wanted = job(role("chief", 1, gpus=1), role(instances=2, gpus=2))
        assert one(wanted, limits()) == (
            "the job asks for 5 GPUs in all (chief 1 + worker 2 x 2); the cluster has 4 on 1 node"
        )

    def test_later_stages_are_counted_by_themselves(self) -> None:
        wanted = job(role("prep", 4, gpus=1), role(instances=4, gpus=1, depends_on=("prep",)))
        assert find_problems(wanted, limits()) == []

    def test_sidecars_do_not_count_nor_does_what_starts_one_by_one(self) -> None:
        tensorboard_role = role("tensorboard", 1, gpus=2, tracking=Tracking.SIDECAR)
        assert find_problems(job(role(instances=4, gpus=1), tensorboard_role), limits()) == []
        assert find_problems(job(role(instances=9, gpus=1), mode=Mode.FCFS), limits()) == []

    def test_the_masters_own_count_too(self) -> None:
        wanted = job(role(instances=4, gpus=1), master=MasterSpec(resources=Resources(512, 1, 1)))
        assert "5 GPUs in all (worker 4 x 1 + the master 1)" in one(wanted, limits())

    def test_more_in_one_container_than_any_node_has(self) -> None:
        cluster = limits((node("one", gpus=2), node("two", gpus=2)))
        assert one(job(role(gpus=3)), cluster) == (
            "tony.worker: worker asks for 1024 MB of memory, 1 vcore, 3 GPUs in a container;"
            " in the cluster no node has that much (one:45454 has 16384 MB of memory, 16 vcores,"
            " 2 GPUs)"
        )

    def test_more_containers_than_the_nodes_have_room_for(self) -> None:
        cluster = limits((node("one", gpus=3), node("two", gpus=3)))
        assert one(job(role(instances=3, gpus=2)), cluster) == (
            "worker: 3 containers of 1024 MB of memory, 1 vcore, 2 GPUs are needed; in the"
            " cluster there is room for 2 of them, even when all nodes are empty"
        )

    def test_none_at_all(self) -> None:
        cluster = limits(types={"memory-mb": "Mi", "vcores": ""}, maximum=Capability(16384, 16))
        assert one(job(role(gpus=1)), cluster) == (
            "tony.worker.gpus: worker asks for yarn.io/gpu, which this cluster does not count;"
            " it counts memory-mb, vcores"
        )


class TestContainers:
    @pytest.mark.parametrize(
        ("requested", "expected"),
        [
            ({"memory": 20000}, "20000 MB of memory in a container; the cluster gives 16384 MB"),
            ({"vcores": 17}, "17 vcores in a container; the cluster gives 16 vcores at most"),
            ({"gpus": 5}, "5 GPUs in a container; the cluster gives 4 GPUs at most"),
        ],
    )
    def test_larger_than_the_largest(self, requested: dict[str, int], expected: str) -> None:
        problem = one(job(role(**requested)), limits())
        assert expected in problem
        assert problem.startswith("tony.worker.")

    def test_the_master_is_judged_as_well(self) -> None:
        wanted = job(master=MasterSpec(resources=Resources(memory_mb=99999)))
        assert one(wanted, limits()).startswith("tony.am.memory: the master asks for 99999 MB")

    def test_an_unknown_resource_is_not_dropped_without_a_word(self) -> None:
        assert one(job(role(other={"fpga": 1})), limits()) == (
            "tony.worker.resource.fpga: worker asks for fpga, which this cluster does not count;"
            " it counts memory-mb, vcores, yarn.io/gpu"
        )

    def test_everything_at_once(self) -> None:
        wanted = job(role(memory=99999, gpus=9), role("ps", 1, other={"fpga": 1}), queue="nowhere")
        cluster = find_problems(wanted, limits(queue=None))
        assert len(cluster) == 4, cluster


class TestQueues:
    def test_one_that_does_not_exist(self) -> None:
        wanted = job(
            queue="mll", settings=(Setting("tony.yarn.queue", "mll", "/home/ada/tony.xml:7"),)
        )
        assert one(wanted, limits(queue=None)) == (
            "/home/ada/tony.xml:7: tony.yarn.queue: there is no queue mll; did you mean ml?"
        )

    def test_those_there_are_when_none_is_near(self) -> None:
        cluster = one(job(queue="zzz"), limits(queue=None))
        assert cluster.endswith("there is no queue zzz; there is: default, ml, tiny")

    def test_a_stopped_one(self) -> None:
        cluster = limits(queue=queue(state="STOPPED"))
        assert "the queue root.ml is stopped and takes no applications" in one(job(), cluster)

    def test_one_with_others_below_it(self) -> None:
        cluster = limits(queue=queue(children=(queue("root.ml.train"), queue("root.ml.eval"))))
        assert "submit to one of its children: train, eval" in one(job(), cluster)

    def test_one_for_others(self) -> None:
        cluster = one(job(), limits(may_submit=False))
        assert "ada may not submit to the queue root.ml" in cluster

    def test_what_is_not_known_is_not_judged(self) -> None:
        bare = ClusterLimits(user="ada", maximum=Capability(16384, 16))
        assert find_problems(job(role(gpus=9, instances=99), queue="x", node_label="y"), bare) == []
        assert find_problems(job(), limits(may_submit=None)) == []

    def test_more_than_it_may_grow_to(self) -> None:
        cluster = limits(queue=queue("root.tiny", maximum={"": Capability(3276, 51, {GPU: 0})}))
        assert find_problems(job(role(instances=4)), cluster) == [
            "the job asks for 4608 MB of memory in all (worker 4 x 1024 + the master 512);"
            " the queue root.tiny may grow to 3276 at most"
        ]

    @pytest.mark.parametrize(
        ("requested", "acls", "path"),
        [
            ("train", {"root.ml.train": set(), "root.ml": set()}, "root.ml.train"),
            ("root.b.train", {"root.a.train": set(), "root.b.train": set()}, "root.b.train"),
            ("train", {"root.a.train": set(), "root.b.train": set()}, "train"),
            ("train", {}, "train"),
        ],
    )
    def test_older_clusters_do_not_report_a_queues_path(
        self, requested: str, acls: dict[str, set[str]], path: str
    ) -> None:
        found = _add_path(queue("train"), requested, acls)
        assert found is not None
        assert found.path == path


class TestLabels:
    def test_one_that_the_cluster_lacks(self) -> None:
        assert one(job(node_label="gpus"), limits(labels={"gpu": True})) == (
            "tony.application.node-label: the cluster has no node label gpus; it has: gpu"
        )
        assert "none (it does not use node labels)" in one(job(node_label="x"), limits(labels={}))

    def test_one_that_the_queue_may_not_use(self) -> None:
        cluster = limits(GPU_NODE, queue(labels=("gpu",)), labels=LABELS)
        assert one(job(role(node_label="reserved")), cluster) == (
            "tony.worker.node-label: the queue root.ml may not use the node label reserved;"
            " it may use: gpu"
        )

    def test_one_that_no_node_has(self) -> None:
        cluster = limits((node("one"),), labels=LABELS)
        (first, *_) = find_problems(job(role(node_label="gpu")), cluster)
        assert first == "tony.worker.node-label: no node that runs has the label gpu"

    def test_only_the_labelled_nodes_count(self) -> None:
        cluster = limits(GPU_NODE, labels=LABELS)
        assert find_problems(job(role(instances=4, gpus=1, node_label="gpu")), cluster) == []
        assert one(job(role(instances=3, gpus=2, node_label="gpu")), cluster) == (
            "the job asks for 6 GPUs in all (worker 3 x 2); the nodes labelled gpu have 4 on 1 node"
        )

    def test_an_exclusive_partition_is_not_for_others(self) -> None:
        cluster = limits(GPU_NODE, labels=LABELS)
        assert "in the cluster no node has that much" in one(job(role(gpus=1)), cluster)
        shared = limits(GPU_NODE, labels={"gpu": False})
        assert find_problems(job(role(gpus=1)), shared) == []

    def test_the_applications_label_is_every_roles_unless_it_has_its_own(self) -> None:
        cluster = limits(GPU_NODE, labels=LABELS)
        assert find_problems(job(role(gpus=4), node_label="gpu"), cluster) == []

    def test_the_queues_default_label_counts(self) -> None:
        cluster = limits(GPU_NODE, queue(default_label="gpu"), labels=LABELS)
        assert find_problems(job(role(gpus=4)), cluster) == []


class TestWords:
    def test_docker_is_fine(self) -> None:
        assert (
            find_problems(job(role(docker=Docker("repo/image:1", ("/data:/data",)))), limits())
            == []
        )

    @pytest.mark.parametrize(
        ("docker", "expected"),
        [
            (Docker('x"; rm'), "cannot be given to YARN"),
            (Docker("image", ("data",)), "is not of the form /SOURCE:/TARGET"),
        ],
    )
    def test_docker_with_words_that_would_break_the_script(
        self, docker: Docker, expected: str
    ) -> None:
        assert expected in one(job(role(docker=docker)), limits())

    def test_a_runtimes_variable_that_would_not_arrive(self) -> None:
        name = "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS"
        for value, expected in (
            ("/a:/a:ro", []),
            ("$HOME:/a", [f"{name} cannot be given to YARN"]),
        ):
            program = Program(container_env=((name, value), ("OTHER", "$HOME")))
            found = find_problems(job(role(), program=program), limits())
            assert [one.partition(": ")[0] for one in found] == expected

    def test_tags(self) -> None:
        assert "there are 11 tags" in one(job(tags=tuple("abcdefghijk")), limits())
        assert "'ü' is not valid on YARN" in one(job(tags=("ü",)), limits())
        ten = tuple("abcdefghij")
        assert find_problems(job(tags=ten), limits()) == []
        assert "YARN takes 9 beside `tony`" in one(job(tags=ten, type="SPEECH"), limits())

    def test_by_rest_a_master_has_no_gpu(self) -> None:
        cluster = limits(by_rest=True)
        wanted = job(master=MasterSpec(resources=Resources(512, 1, 1)))
        assert "RPC port cannot be reached" in one(wanted, cluster)
        assert find_problems(job(role(gpus=1)), cluster) == []


def test_an_image_that_a_node_may_not_run_is_worth_a_word() -> None:
    image = Docker("repo/image:1")
    (expected,) = find_warnings(job(role("ps", docker=image), role(docker=image)), limits())
    assert expected.startswith("ps, worker: ")
    assert "docker runtime" in expected and "without" in expected


class TestWaiting:
    def test_a_full_cluster(self) -> None:
        busy = Capability(15000, 2, {GPU: 3})
        cluster = limits((node("one"), node("two", gpus=4, used=busy)))
        (expected,) = find_warnings(job(role(instances=2, gpus=1)), cluster)
        assert expected == (
            "the job will wait: it asks for 2 GPUs, and 1 of 4 are free in the cluster now"
        )

    def test_a_queue_that_has_grown_as_far_as_it_may(self) -> None:
        full = queue(
            "root.tiny",
            maximum={"": Capability(3276, 51, {})},
            statistics=QueueStatistics(allocated_memory_mb=3000, num_apps_running=1),
        )
        (expected,) = find_warnings(job(), limits(queue=full))
        assert expected == (
            "the job will wait: it asks for 1536 MB of memory, and the queue root.tiny holds"
            " 3000 of the 3276 that it may have"
        )

    def test_others_wait_already(self) -> None:
        busy = queue(statistics=QueueStatistics(num_apps_pending=2, num_apps_running=5))
        (expected,) = find_warnings(job(), limits(queue=busy))
        assert expected.startswith("2 applications already wait in the queue root.ml (5 run)")

    def test_more_masters_than_the_cluster_starts(self) -> None:
        (expected,) = find_warnings(job(master=MasterSpec(max_attempts=5)), limits())
        assert "tony.am.max-attempts is 5" in expected
        assert "2 times at most" in expected


@given(
    st.integers(1, 12),
    st.integers(0, 5),
    st.integers(64, 20000),
    st.lists(st.tuples(st.integers(0, 20000), st.integers(0, 4)), min_size=1, max_size=4),
)
def test_what_fits_container_by_container_is_never_refused(
    instances: int, gpus: int, memory: int, sizes: list[tuple[int, int]]
) -> None:
    """Placed greedily on empty nodes, with the master: if that works, there is no problem."""
    nodes = [node(f"n{i}", m, 64, g) for i, (m, g) in enumerate(sizes)]
    wanted = job(role(instances=instances, gpus=gpus, memory=memory))
    most = Capability(max(m for m, _ in sizes), 64, {GPU: max(g for _, g in sizes)})
    cluster = find_problems(wanted, limits(nodes, maximum=most))
    room = [[m, 64, g] for m, g in sizes]
    needs = [[memory, 1, gpus]] * instances + [[512, 1, 0]]
    placed = 0
    for need in needs:
        for free in room:
            if all(have >= demand for have, demand in zip(free, need, strict=True)):
                free[:] = [have - demand for have, demand in zip(free, need, strict=True)]
                placed += 1
                break
    if placed == len(needs):
        assert cluster == []
    fits_nowhere = not any(m >= memory and g >= gpus for m, g in sizes)
    if fits_nowhere or instances * gpus > sum(g for _, g in sizes):
        assert cluster


class TestPlacement:
    def test_what_the_master_could_not_ask_for_names_its_key(self) -> None:
        wanted = job(
            role("ps", placement_spec="NOTIN,NODE,ps"), role(placement_spec="NOTIN,SHELF,worker")
        )
        assert one(wanted, limits()) == (
            "tony.worker.placement-spec: 'NOTIN,SHELF,worker' is not a placement constraint:"
            " expected the scope NODE or RACK, not SHELF"
        )

    def test_one_of_the_whole_application(self) -> None:
        assert "tony.application.placement-spec: 'garbage' is not a placement" in one(
            job(placement_spec="garbage"), limits()
        )

    def test_one_problem_of_every_role_is_reported_once_with_its_key(self) -> None:
        spec = "garbage"
        wanted = job(
            role("ps", placement_spec=spec),
            role(placement_spec=spec),
            settings=(Setting("tony.containers.placement-spec", spec, "--conf"),),
        )
        assert "tony.containers.placement-spec: 'garbage'" in one(wanted, limits())

    def test_a_spec_for_tags_that_the_role_does_not_have(self) -> None:
        wanted = job(role(placement_spec="db=1,NOTIN,NODE,db", allocation_tags=("web",)))
        assert "tony.worker.placement-spec" in one(wanted, limits())
