"""Executors in YARN's containers: GPUs that YARN does not isolate, ends that leave nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Callable, List

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until
from tests.executor.standin import alive

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# A tree that ignores TERM, with a session of its own in it; each writes its pid.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pids = sys.argv[1]
if len(sys.argv) == 2 and os.environ["SESSION_ID"] == "0":
    subprocess.Popen([sys.executable, __file__, pids, "x"], start_new_session=True)
    subprocess.Popen([sys.executable, __file__, pids, "x"])
elif len(sys.argv) == 2:
    sys.exit(0)
open(f"{pids}/{os.getpid()}", "w").close()
time.sleep(300)
"""


@pytest.fixture
def one(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> Tony:
    return tony_on(hadoop("two_nodes", "gpu"))


def gpus(folder: Path, count: int) -> Path:
    """Stands for nvidia-smi on nodes that have none."""
    script = folder / "nvidia-smi"
    lines = [f"echo 'GPU {n}: Model (UUID: GPU-{n}{n})'" for n in range(count)]
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    return script


def with_smi(script: Path, folder: Path, **more: object) -> dict:
    return {
        "tony.worker.instances": 2,
        "tony.worker.gpus": 2,
        "tony.worker.memory": "64m",
        "tony.gpu-exec-path": script,
        "tony.containers.env.TONY_GPU_LOCKS": folder / "locks",
        **more,
    }


def test_two_containers_of_a_node_share_no_gpu(one: Tony, tmp_path: Path) -> None:
    words = "sh -c 'echo \"got $CUDA_VISIBLE_DEVICES\"; sleep 3'"
    job = one.submit("--executes", words, conf=with_smi(gpus(tmp_path, 4), tmp_path))
    job.ends(0)
    lines = [
        line.split()[-1] for line in one("logs", job.app_id).stdout.splitlines() if "got" in line
    ]
    assert sorted(",".join(lines).split(",")) == ["GPU-00", "GPU-11", "GPU-22", "GPU-33"]


def test_too_few_gpus_are_the_nodes_fault(one: Tony, tmp_path: Path) -> None:
    conf = with_smi(gpus(tmp_path, 1), tmp_path, **{"tony.task.max-infrastructure-failures": 0})
    job = one.submit("--executes", "touch " + str(tmp_path / "ran"), conf=conf)
    output = job.ends(1)
    assert "2 GPUs asked for, and node " in output and "shows 1" in output
    assert not (tmp_path / "ran").exists()


def test_the_only_node_with_gpus_is_asked_again(one: Tony, tmp_path: Path) -> None:
    """Of two; it shows none the first time."""
    script = gpus(tmp_path, 2)
    seen = tmp_path / "seen"
    text = script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\nmkdir {seen} && exit 0\n")
    script.write_text(text)
    job = one.submit(
        "--executes", "true", conf=with_smi(script, tmp_path, **{"tony.worker.instances": 1})
    )
    job.ends(0)
    events = job.events()
    assert [event["kind"] for event in events].count("root-cause") == 1
    assert "shows 0" in str(events)


def test_where_nothing_can_count_them_the_job_goes_on(one: Tony, tmp_path: Path) -> None:
    job = one.submit("--executes", "true", conf=with_smi(tmp_path / "nvidia-smi", tmp_path))
    job.ends(0)
    warnings = [event["text"] for event in job.events() if "not counted" in event["text"]]
    assert len(warnings) == 1
    assert "tony.gpu-exec-path" in warnings[0] and "tony.task.gpu-check" in warnings[0]


@pytest.mark.parametrize("which", ["executor", "container"])
def test_a_killed_container_leaves_nothing(one: Tony, tmp_path: Path, which: str) -> None:
    """Of the process that the node knows, or of the one behind it."""
    seen = tmp_path / "pids"
    seen.mkdir()
    seen.chmod(0o777)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tree.py").write_text(STUBBORN)
    job = one.submit(
        *("--src_dir", str(tmp_path / "src"), "--executes", f"python3 tree.py {seen}"),
        conf={"tony.worker.instances": 1, "tony.worker.memory": "64m"},
    )

    def written() -> List[int]:
        found = [int(name) for name in os.listdir(seen)]
        return found if len(found) == 3 else []

    pids = job.until(written, "the tree")
    groups = {os.getpgid(pid) for pid in pids}
    assert len(groups) == 2
    container = next(group for group in groups if group not in pids)
    target = container if which == "container" else behind(container)
    os.kill(target, signal.SIGKILL)
    until(lambda: not [pid for pid in pids if alive(pid)], "nothing to be left", 30)
    job.ends(0)


def behind(pid: int) -> int:
    """The only child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
