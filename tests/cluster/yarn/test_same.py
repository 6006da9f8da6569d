"""The same job file on both schedulers: the same result, variables and story."""

from __future__ import annotations

import json
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import CHECKOUT, Running, Tony, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

FEATURES = ("two_nodes", "gpu", "log_aggregation", "bare_environment")
MPI = CHECKOUT / "examples" / "mpi"

LOOKS = """
import json, os, sys, time
role, index, session = (os.environ[name] for name in ("JOB_NAME", "TASK_INDEX", "SESSION_ID"))
with open("/proc/%d/environ" % os.getppid()) as file:
    around = file.read().split("\\0")
here = {"env": dict(os.environ), "around": around, "argv": sys.argv[1:]}
here["files"] = sorted(os.listdir())
path = os.path.join(sys.argv[1], "-".join((role, index, session)))
with open(path + ".part", "w") as file:
    json.dump(here, file)
os.rename(path + ".part", path)
print("looked around in", path)
for _ in range(1000):  # all four have looked, before anybody ends anything
    if sum(name.endswith("-" + session) for name in os.listdir(sys.argv[1])) == 4:
        break
    time.sleep(0.1)
if session == "0":
    if (role, index) == ("worker", "1"):
        sys.exit("not in the first session")
    time.sleep(300)
if role == "ps":
    time.sleep(300)
"""

YARNS = re.compile(
    r"(_?PYENV_|APPLICATION_|HADOOP_|NM_|YARN_|LOCAL_|LOG_DIR|JVM_|MALLOC_|CONTAINER_ID|LOCALIZER|USER$|"
    r"LOGNAME|HOME|SHELL$|PWD|OLDPWD|SHLVL|_$|PATH$|LD_|CLASSPATH|JAVA_HOME|LANG|PRELAUNCH|SSL_|PYTEST|TMPDIR)"
)
"""What a cluster's containers have, and what the shell of a test run has: nothing of TonY's."""


def run(tony: Tony) -> Tuple[Running, Dict[str, Any], List[Dict[str, Any]]]:
    """A gang with a chief that fails once; what its tasks saw, and the story."""
    seen = tony.folder / "seen"
    seen.mkdir()
    seen.chmod(0o777)
    src = tony.folder / "src"
    (src / "package").mkdir(parents=True)
    (src / "look.py").write_text(LOOKS)
    (src / "package" / "data.txt").write_text("x")
    for name in ("extra.txt", "equal.txt"):
        (tony.folder / name).write_text("y")
    job = tony.submit(
        *("--src_dir", str(src), "--executes", "python3 look.py", "--task_params", str(seen)),
        *("--shell_env", 'COLOUR=a "b" $c `d` \\\\e', "--container_env", "SHAPE=round"),
        *("--container_env", "PIN_PASSWORD=sesame"),
        conf={
            "tony.application.name": "look",
            "tony.chief.instances": 1,
            "tony.worker.instances": 2,
            "tony.ps.instances": 1,
            "tony.containers.resources": f"{tony.folder / 'extra.txt'}::other.txt",
            "tony.application.enable-preprocess": "true",
            "tony.am.command": 'cat extra.txt equal.txt > "$TONY_PARAMETERS_FILE"',
            "tony.am.resources": f"{tony.folder / 'extra.txt'},{tony.folder / 'equal.txt'}",
            "tony.application.checkpoint-dir": tony.folder / "checkpoints",
            **{f"tony.{role}.memory": "64m" for role in ("chief", "worker", "ps")},
        },
    )
    job.ends(0)
    found = {path.name: json.loads(path.read_text()) for path in seen.iterdir()}
    return job, found, job.events()


def plain(value: str, tony: Tony, app_id: str) -> str:
    """Without what must differ from run to run."""
    value = re.sub(r"\S+/program$", "PROGRAM", value)  # where `import tony` finds it
    value = value.replace(app_id, "APP").replace(str(tony.folder), "FOLDER")
    value = re.sub(r"(127\.0\.0\.\d|localhost|[\w.-]+):\d{4,5}", "HOST:PORT", value)
    return re.sub(r"^\d{4,5}$", "PORT", value)


def test_variables_files_and_story(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    local, yarn = tony_on(), tony_on(hadoop(*FEATURES))
    one, seen_local, story_local = run(local)
    two, seen_yarn, story_yarn = run(yarn)
    assert sorted(seen_local) == sorted(seen_yarn)
    for name, here in seen_local.items():
        there = seen_yarn[name]
        assert here["files"] == there["files"], name
        mine = {key: plain(v, local, one.app_id) for key, v in here["env"].items()}
        theirs = {key: plain(v, yarn, two.app_id) for key, v in there["env"].items()}
        # On one's own machine a task has its user's shell besides; a cluster's has not.
        wanted = {key for key in mine if not YARNS.match(key) and key not in os.environ}
        assert {key: theirs.get(key) for key in wanted if not key.endswith(("_DIR", "_FILE"))} == {
            key: mine[key] for key in wanted if not key.endswith(("_DIR", "_FILE"))
        }, name
        assert wanted <= theirs.keys()
        # There programs find HDFS by the Hadoop configuration of the user's machine.
        assert {key for key in theirs if key.startswith("TONY_")} == {
            "TONY_HDFS",
            *(key for key in mine if key.startswith("TONY_")),
        }
        assert there["env"]["COLOUR"] == 'a "b" $c `d` \\\\e'
        assert there["env"]["SHAPE"] == "round"
        for seen in (here, there):
            assert "SHAPE=round" in seen["around"], "what starts the program has it from its start"
            assert not [one for one in seen["around"] if one.startswith(("COLOUR", "PIN_PASS"))]
            assert seen["env"]["PIN_PASSWORD"] == "sesame"
        assert there["env"]["MODEL_PARAMS"] == "yy"
        assert "MALLOC_ARENA_MAX" not in there["env"]
        assert "JAVA_HOME" not in there["env"], "the node gives away its environment"
    assert kinds(story_local) == kinds(story_yarn)


def kinds(story: List[Dict[str, Any]]) -> List[str]:
    """What decides a story; how its parts interleave is chance."""
    lasting = [
        event for event in story if event.get("kind") not in ("waiting", "links", "progress")
    ]
    weighty = [e for e in lasting if e["kind"] in ("session", "root-cause", "restart", "job-ended")]
    return [str(event["kind"]) for event in weighty]


@pytest.mark.parametrize("version", [pytest.param("3.4.2", marks=pytest.mark.nightly), "3.3.6"])
def test_an_example_trains_dies_and_resumes(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    environment: Callable[[str], Path],
    version: str,
) -> None:
    """Killed by kill -9 in the middle, on a cluster; the loss is the embedded scheduler's."""
    python = environment("mpi") / "bin" / "python"
    features = FEATURES if version == "3.4.2" else ()
    cluster = tony_on(hadoop(*features, version=version))
    losses = {}
    for name, one in (("yarn", cluster), ("local", tony_on())):
        checkpoints = one.folder / "checkpoints"
        job = one.submit(
            *(
                "--python_binary_path",
                str(python),
                "--task_params",
                "--steps 120 --step-sleep 0.02",
            ),
            conf={
                "tony.application.checkpoint-dir": checkpoints,
                "tony.application.tensorboard-log-dir": one.folder / "events",
            },
            cwd=MPI,
        )
        if name == "yarn":
            job.until(partial(far, checkpoints), "step 45")
            os.kill(program(checkpoints), signal.SIGKILL)
        job.ends(0)
        (result,) = checkpoints.glob("*/result.json")
        outcome = json.loads(result.read_text())
        losses[name] = (outcome["first_loss"], outcome["last_loss"])
        assert outcome["sessions"] == (2 if name == "yarn" else 1)
        if name == "yarn":
            assert outcome["resumed_at"] in (20, 40, 60)
            causes = [event for event in job.events() if event["kind"] == "root-cause"]
            assert [event["task"] for event in causes] == ["worker:1"]
    assert losses["yarn"] == pytest.approx(losses["local"], rel=1e-4)
    until(cluster.nothing_runs, "no process is left")


def far(checkpoints: Path) -> bool:
    """Whether there is something to lose."""
    return len(steps(checkpoints)) > 45


def steps(checkpoints: Path) -> List[str]:
    """The lines of every step done so far."""
    texts = [path.read_text() for path in checkpoints.glob("*/steps.jsonl")]
    return [line for text in texts for line in text.splitlines()]


def program(checkpoints: Path) -> int:
    """The pid of worker 1's program."""
    wanted = {f"TONY_CHECKPOINT_DIR={checkpoints}", "JOB_NAME=worker", "TASK_INDEX=1"}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = set((entry / "environ").read_text().split("\0"))
                words = (entry / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if wanted <= environ and "python" in words[0] and "train.py" in words:
                return int(entry.name)
    raise AssertionError("no program of worker:1 runs")
