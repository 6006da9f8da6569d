"""The examples' job files and data: they load, name what is there, and belong together."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tony_core.client.submission import load
from tony_core.job.load import JobArguments

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/tony.xml"))


def test_there_is_one_for_each_framework() -> None:
    frameworks = {"horovod", "jax", "keras", "lightgbm", "mpi", "mxnet", "pytorch", "tensorflow"}
    frameworks |= {"ray", "xgboost"}
    assert {"hdfs", *frameworks, "tensorflow-ps"} <= set(NAMES)


def test_the_one_on_hdfs_keeps_everything_there() -> None:
    loaded = load(JobArguments(), env={"HADOOP_USER_NAME": "ann"}, cwd=str(EXAMPLES / "hdfs"))
    assert loaded.warnings == ()
    (role,) = loaded.job.roles
    assert " --data hdfs:///user/" in role.command
    assert str(loaded.job.program.checkpoint_dir).startswith("hdfs:///user/")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "hdfs"])
def test_the_job_file_is_accepted_without_a_warning(name: str) -> None:
    folder = EXAMPLES / name
    loaded = load(JobArguments(python_binary_path="/opt/env/bin/python"), env={}, cwd=str(folder))
    assert loaded.warnings == ()
    job = loaded.job
    assert job.program.src == str(folder / "src")
    assert {ref.name for ref in job.files} == {"points.csv", "course.py"}
    # Every example keeps its checkpoints and events apart from the others'.
    assert job.program.checkpoint_dir and f"/{name}/" in job.program.checkpoint_dir
    assert job.program.tensorboard_log_dir
    for role in job.roles:
        assert role.command == (
            f"/opt/env/bin/python train.py --log-dir {job.program.tensorboard_log_dir}"
        )
    assert sum(role.instances for role in job.roles) <= 4


@pytest.mark.parametrize("name", NAMES)
def test_the_program_can_be_read_and_explained(name: str) -> None:
    tree = ast.parse((EXAMPLES / name / "src" / "train.py").read_text())
    assert ast.get_docstring(tree)
    assert (EXAMPLES / name / "README.md").read_text().startswith("# ")
    assert f"]({name})" in (EXAMPLES / "README.md").read_text()


def test_the_data_set_is_what_its_script_makes(tmp_path: Path) -> None:
    script = tmp_path / "make.py"
    script.write_bytes((EXAMPLES / "data" / "make.py").read_bytes())
    subprocess.run([sys.executable, str(script)], check=True, timeout=60)
    made = (tmp_path / "points.csv").read_bytes()
    assert made == (EXAMPLES / "data" / "points.csv").read_bytes()
    assert len(made) < 200_000
