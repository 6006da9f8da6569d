"""The words of a job file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_azkaban import translation
from tony_azkaban.site import Site
from tony_core.job.problems import JobError


def test_every_word(tmp_path: Path) -> None:
    props = {
        "executes": "python train.py",
        "task_params": "--lr 0.1 'a b'",
        "src_dir": "code",
        "python_venv": "venv.zip",
        "python_binary_path": "venv/bin/python",
        "conf_file": "job.xml",
        "hdfs_classpath": "hdfs://nn/lib",
        "worker_env.E1": "e1",
        "tony.worker.instances": "2",
        "tony.home": "/opt/plugins/tony",
        "type": "tony",
        "retries": "1",
    }
    made = translation.arguments(props, Site(), str(tmp_path))
    assert (made.executes, made.task_params) == ("python train.py", "--lr 0.1 'a b'")
    assert (made.src_dir, made.python_venv) == ("code", "venv.zip")
    assert (made.python_binary_path, made.conf_file) == ("venv/bin/python", "job.xml")
    assert made.hdfs_classpath == "hdfs://nn/lib"
    assert made.shell_env == {"E1": "e1"}
    assert made.extra == {"tony.worker.instances": "2"}


def test_the_source_is_src_if_there_is_one(tmp_path: Path) -> None:
    assert translation.arguments({}, Site(), str(tmp_path)).src_dir is None
    (tmp_path / "src").mkdir()
    assert translation.arguments({}, Site(), str(tmp_path)).src_dir == "src"


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ("'python train.py'", "python train.py"),
        ('"python train.py"', "python train.py"),
        ("'a' 'b'", "'a' 'b'"),
        ("python 'a b.py'", "python 'a b.py'"),
        ("'", "'"),
    ],
)
def test_quotes_around_the_whole_command_are_the_jvms(said: str, runs: str) -> None:
    assert translation.arguments({"executes": said}, Site(), "/").executes == runs


def test_quotes_around_a_whole_value_go_and_others_stay() -> None:
    said = {"worker_env.A": '"-Da -Db"', "worker_env.B": '{"a": "b"}', "env.C": "'as it is'"}
    assert translation.environment(said) == {"A": "-Da -Db", "B": '{"a": "b"}', "C": "'as it is'"}
    made = translation.arguments({"task_params": "'a b'", "src_dir": "'"}, Site(), "/")
    assert (made.task_params, made.src_dir) == ("'a b'", "'")


@given(
    st.dictionaries(
        st.sampled_from(["A", "B", "HADOOP_CONF_DIR", "not-a-name"]),
        st.text().filter(lambda text: text[:1] not in ("'", '"')),
    )
)
def test_the_environment(said: dict[str, str]) -> None:
    env = translation.environment({f"env.{name}": text for name, text in said.items()})
    assert env == {name: said[name] for name in ("A", "B") if name in said}
    both = {f"env.{name}": "low" for name in said} | {f"worker_env.{n}": t for n, t in said.items()}
    if "not-a-name" in said:
        with pytest.raises(JobError, match=r"worker_env.not-a-name"):
            translation.environment(both)
    else:
        assert translation.environment(both) == said
