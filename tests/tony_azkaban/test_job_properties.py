"""The words of a job file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz
from tony_azkaban import job_properties
from tony_azkaban.job_properties import find_unused
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
    made = job_properties.arguments(props, Site(), str(tmp_path))
    assert (made.executes, made.task_params) == ("python train.py", "--lr 0.1 'a b'")
    assert (made.src_dir, made.python_venv) == ("code", "venv.zip")
    assert (made.python_binary_path, made.conf_file) == ("venv/bin/python", "job.xml")
    assert made.hdfs_classpath == "hdfs://nn/lib"
    assert made.shell_env == {"E1": "e1"}
    assert made.extra == {"tony.worker.instances": "2"}


def test_the_source_is_src_if_there_is_one(tmp_path: Path) -> None:
    assert job_properties.arguments({}, Site(), str(tmp_path)).src_dir is None
    (tmp_path / "src").mkdir()
    assert job_properties.arguments({}, Site(), str(tmp_path)).src_dir == "src"


@pytest.mark.parametrize(
    ("given", "runs"),
    [
        ("'python train.py'", "python train.py"),
        ('"python train.py"', "python train.py"),
        ("'a' 'b'", "'a' 'b'"),
        ("python 'a b.py'", "python 'a b.py'"),
        ("'", "'"),
    ],
)
def test_quotes_around_the_whole_command_are_the_jvms(given: str, runs: str) -> None:
    assert job_properties.arguments({"executes": given}, Site(), "/").executes == runs


def test_quotes_around_a_whole_value_go_and_others_stay() -> None:
    given = {"worker_env.A": '"-Da -Db"', "worker_env.B": '{"a": "b"}', "env.C": "'as it is'"}
    assert job_properties.environment(given) == {
        "A": "-Da -Db",
        "B": '{"a": "b"}',
        "C": "'as it is'",
    }
    made = job_properties.arguments({"task_params": "'a b'", "src_dir": "'"}, Site(), "/")
    assert (made.task_params, made.src_dir) == ("'a b'", "'")


@given(
    st.dictionaries(
        st.sampled_from(["A", "B", "HADOOP_CONF_DIR", "not-a-name"]),
        st.text().filter(lambda text: text[:1] not in ("'", '"')),
    )
)
def test_the_environment(given: dict[str, str]) -> None:
    env = job_properties.environment({f"env.{name}": text for name, text in given.items()})
    assert env == {name: given[name] for name in ("A", "B") if name in given}
    both = {f"env.{name}": "low" for name in given} | {
        f"worker_env.{n}": t for n, t in given.items()
    }
    if "not-a-name" in given:
        with pytest.raises(JobError, match=r"worker_env.not-a-name"):
            job_properties.environment(both)
    else:
        assert job_properties.environment(both) == given


def test_what_is_about_the_submitting_machine_reaches_no_task() -> None:
    """As with the JVM plugin, whose client alone had it; for tasks there is ``worker_env.``."""
    names = ("PATH", "JAVA_HOME", "LD_LIBRARY_PATH", "HADOOP_HOME", "HADOOP_OPTS", "YARN_OPTS")
    props = {f"env.{name}": "/of/the/server" for name in names}
    assert job_properties.environment(props) == {}
    (note,) = find_unused(props)
    assert all(f"env.{name}" in str(note) for name in names)
    assert "worker_env." in str(note)
    theirs = {f"worker_env.{name}": "/of/the/node" for name in names}
    assert job_properties.environment({**props, **theirs}) == dict.fromkeys(names, "/of/the/node")
    assert find_unused({**props, **theirs}) == []


def test_variables_of_the_submit_are_not_reported() -> None:
    names = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_USER_NAME", "TONY_HOME", "OWN")
    assert find_unused({f"env.{name}": "x" for name in names}) == []


def test_a_variable_that_no_shell_could_name_is_named_as_find_unused() -> None:
    (note,) = find_unused({"env.x-y": "1", "env.A.B": "2", "env.OWN": "3"})
    assert "env.A.B, env.x-y" in str(note) and "OWN" not in str(note)


def test_properties_of_a_jvm_are_named_and_do_nothing() -> None:
    props = {
        "hadoop-inject.mapreduce.job.queuename": "ml",
        "jvm.args": "-Dx=y",
        "classpath": "./lib/*",
        "obtain.binary.token": "true",
    }
    (note,) = find_unused({**props, "own": "1"})
    assert all(key in str(note) for key in props)
    assert find_unused({"obtain.binary.token": "false", "jvm.args": " "}) == []


def test_main_args_are_options_of_a_submit() -> None:
    """The JVM plugin put them first, and of an option twice its client took the first."""
    words = """-executes 'python train.py' -task_params "--lr 0.1" --conf=tony.worker.gpus=2
        -conf tony.ps.instances=1 -shell_env A=main -shell_env B=main -container_env C=main x"""
    props = {
        "main.args": words,
        "executes": "of the property",
        "src_dir": "code",
        "tony.worker.gpus": "1",
        "worker_env.A": "worker",
    }
    made = job_properties.arguments(props, Site(), "/")
    assert (made.executes, made.task_params) == ("python train.py", "--lr 0.1")
    assert made.src_dir == "code"
    assert made.extra == {"tony.worker.gpus": "2", "tony.ps.instances": "1"}
    assert made.shell_env == {"A": "worker", "B": "main"}
    assert made.container_env == {"C": "main"}
    (note,) = find_unused(props)
    assert "1 of the words of main.args" in str(note)


def test_lists_of_a_submit_as_properties() -> None:
    props = {
        "conf": "tony.worker.gpus=2 'tony.application.name=two words'",
        "shell_env": "A=1 'B=two words'",
        "container_env": "C=3",
        "main.args": "-shell_env A=main",
    }
    made = job_properties.arguments(props, Site(), "/")
    assert made.extra == {"tony.worker.gpus": "2", "tony.application.name": "two words"}
    assert made.shell_env == {"A": "main", "B": "two words"}
    assert made.container_env == {"C": "3"}


@pytest.mark.parametrize("text", ["/etc/tony.xml", "prod", "mode=prod", "'open"])
def test_a_property_conf_of_the_flows_own_is_none_of_ours(text: str) -> None:
    """Shared properties have such a name for other jobs, and the JVM plugin did not know it."""
    assert job_properties.arguments({"conf": text}, Site(), "/").extra == {}
    (note,) = find_unused({"conf": text})
    assert "conf" in str(note) and "tony." in str(note)
    assert find_unused({"conf": " "}) == find_unused({"conf": "tony.worker.gpus=2"}) == []


WORDS = [
    "-conf",
    "--conf_file",
    "-shell_env=A=b",
    "A=b",
    "=",
    "-",
    "--",
    "'",
    '"a b"',
    "-x",
    "\\",
    "tony.x=1",
]


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"main.args": "-executs x"}, r"main.args: .*-executs.*did you mean.*executes"),
        ({"main.args": "-executes"}, r"main.args: -executes needs a value"),
        ({"main.args": "-executes 'open"}, r"main.args: .*quot"),
        ({"main.args": "-conf hush-hush"}, r"main.args: .*-conf.*KEY=VALUE"),
        ({"shell_env": "FLAGS=-Da hush-hush"}, r"shell_env: .*KEY=VALUE"),
        ({"conf": "'tony.worker.gpus=1"}, r"conf: .*quot"),
        ({"conf": "tony.worker.gpus hush-hush"}, r"conf: .*KEY=VALUE"),
        ({"container_env": "A B=hush-hush"}, r"container_env: .*KEY=VALUE"),
    ],
)
def test_options_that_cannot_be_read(props: dict[str, str], message: str) -> None:
    with pytest.raises(JobError, match=message) as caught:
        job_properties.arguments(props, Site(), "/")
    assert "hush" not in str(caught.value)


@fuzz(
    text=st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join),
    key=st.sampled_from(["main.args", "conf", "shell_env", "container_env"]),
)
def test_any_text_is_options_or_one_error(text: str, key: str) -> None:
    try:
        job_properties.arguments({key: text}, Site(), "/")
    except JobError as error:
        assert key in str(error)
