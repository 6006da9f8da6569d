"""From an operator's arguments to the client's words."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.workflow.test_output import Logs, view
from tests.fuzzing import fuzz, mutations
from tony_airflow.job_arguments import read_arguments, role_keys, secrets_of
from tony_airflow.parsing import JOB_ARGUMENTS
from tony_core.client.workflow.output import read_output
from tony_core.job.load import JobArguments, load_job
from tony_core.job.problems import JobError


def job_arguments(given: Dict[str, Any], **more: Any) -> JobArguments:
    """The client's arguments; JobError with all problems."""
    arguments, problems = read_arguments(given, **more)
    if problems:
        raise JobError(problems)
    return arguments


def wrong(**words: Any) -> List[str]:
    with pytest.raises(JobError) as refused:
        job_arguments(dict(**words))
    return [str(problem) for problem in refused.value.problems]


class TestMessages:
    def test_everything_of_a_job_becomes_a_job(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        words = {
            "executes": "python train.py",
            "task_params": "--epochs 3",
            "src_dir": "src",
            "roles": {
                "worker": {"instances": 4, "memory": "4g", "gpus": 1, "depends_on": ["prepare"]},
                "prepare": 1,
            },
            "conf": {
                "tony.am.retry-count": 0,
                "tony.application.fail-on-worker-failure-enabled": True,
            },
            "env": {"GREETING": "hello", "LEVEL": 3},
            "container_env": {"LD_PRELOAD": PurePosixPath("/lib/x.so")},
            "files": ["data.csv::d.csv", "/abs/model"],
            "framework": "pytorch",
            "job_name": "mnist",
            "yarn_queue": "ml",
            "node_label": "gpu",
            "tags": ["nightly", "mine"],
            "docker_image": "repo/train:1",
            "checkpoint_dir": "hdfs:///ckpt",
            "tensorboard_log_dir": "/logs",
            "timeout": timedelta(hours=2),
        }
        job = load_job(job_arguments(words, folder=str(tmp_path)), env={}, program=()).job
        worker, prepare = job.role("worker"), job.role("prepare")
        assert (worker.instances, worker.resources.memory_mb, worker.resources.gpus) == (4, 4096, 1)
        assert worker.depends_on == ("prepare",) and prepare.instances == 1
        assert worker.command == "python train.py --epochs 3"
        assert worker.docker is not None and worker.docker.image == "repo/train:1"
        assert job.program.src == str(tmp_path / "src")
        assert dict(job.program.shell_env) == {"GREETING": "hello", "LEVEL": "3"}
        assert dict(job.program.container_env) == {"LD_PRELOAD": "/lib/x.so"}
        assert [ref.source for ref in job.files] == [str(tmp_path / "data.csv"), "/abs/model"]
        assert (job.framework, job.name, job.queue, job.node_label) == (
            "pytorch",
            "mnist",
            "ml",
            "gpu",
        )
        assert job.tags == ("nightly", "mine")
        assert job.master.user_retries == 0 and job.fail_on_worker_failure
        assert job.timeouts.application_s == 7200
        assert job.program.checkpoint_dir == "hdfs:///ckpt"

    def test_no_arguments_set_no_keys(self) -> None:
        assert job_arguments({}) == JobArguments(shell_env={}, container_env={})

    @pytest.mark.parametrize("message", ["2h", 7200, timedelta(hours=2), "7200", 7200.0])
    def test_a_timeout_in_each_way(self, message: object) -> None:
        arguments = job_arguments({"executes": "true", "timeout": message})
        assert load_job(arguments, env={}, program=()).job.timeouts.application_s == 7200

    def test_the_job_files_own_resources_stay(self, tmp_path: Path) -> None:
        (tmp_path / "tony.xml").write_text(
            "<configuration><property><name>tony.containers.resources</name>"
            "<value>/one</value></property></configuration>"
        )
        words = {"executes": "true", "files": "/two,/three", "conf_file": "tony.xml"}
        job = load_job(job_arguments(words, folder=str(tmp_path)), env={}).job
        assert [ref.source for ref in job.files] == ["/one", "/two", "/three"]

    def test_a_lease_is_the_operators_unless_conf_names_one(self) -> None:
        assert job_arguments({}, lease_s=90).extra["tony.client.lease"] == "90s"
        message = job_arguments({"conf": {"tony.client.lease": "5m"}}, lease_s=90)
        assert "tony.client.lease" not in message.extra

    @pytest.mark.parametrize(
        "path", ["/abs/src", "hdfs://nn/src", "file:///abs/src", "<configuration/>", "  <x/>"]
    )
    def test_what_is_no_relative_path_stays(self, path: str) -> None:
        assert job_arguments({"conf_file": path}, folder="/dags").conf_file == path
        assert job_arguments({"conf_file": "a/../b.xml"}, folder="/dags").conf_file == (
            "/dags/b.xml"
        )

    def test_an_other_resource_and_an_image_of_one_role(self) -> None:
        extra = job_arguments(
            {"roles": {"worker": {"resource": {"yarn.io/fpga": 2}, "docker_image": "x:1"}}}
        ).extra
        assert extra == {
            "tony.worker.resource.yarn.io/fpga": "2",
            "tony.docker.enabled": "true",
            "tony.docker.worker.image": "x:1",
        }


class TestWhatIsWrong:
    def test_all_of_it_at_once_with_what_was_meant(self) -> None:
        found = wrong(
            executes={"python": "train.py"},
            roles={"Worker": 1, "worker": {"memry": "1g", "instances": object()}, "docker": 1},
            env={"A B": "x", "OK": None, "YES": True},
            conf={"tony.x": None},
            tags=[1],
            timeout=-1,
        )
        text = "\n".join(found)
        assert "executes: expected a text, not a dict" in text
        assert "roles['Worker']" in text and "(did you mean worker?)" in text
        assert "roles['worker']['memry']" in text and "(did you mean memory?)" in text
        assert "roles['worker']['instances']: cannot be an object" in text
        assert "roles['docker']: the name is reserved" in text
        assert "'A B' is not the name of a variable" in text
        assert "env['OK']" in text and "env['YES']" in text
        assert "conf['tony.x']: has no value" in text
        assert "tags: 1 is not a text" in text
        assert "timeout: -1 is not a duration" in text
        assert len(found) == 11

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ({"roles": ["worker"]}, "expected a mapping like"),
            ({"roles": {"worker": "2"}}, "expected a mapping like"),
            ({"roles": {"worker": {"resource": 1}}}, "expected a mapping like"),
            ({"roles": {"worker": {"nothing_like_it": 1}}}, "there are: instances"),
            ({"conf": ["tony.x"]}, "expected key=value"),
            ({"conf": {"a=b": 1}}, "expected a key"),
            ({"env": "A=b"}, "expected a mapping like"),
            ({"files": {"a": 1}}, "expected a list of texts"),
            ({"files": ["a,b"]}, "not a text without a comma"),
        ],
    )
    def test_each(self, words: Dict[str, Any], message: str) -> None:
        assert message in "\n".join(wrong(**words))

    def test_what_is_right_beside_it_is_kept_for_the_other_checks(self) -> None:
        arguments, problems = read_arguments({"executes": "true", "tags": [1]})
        assert arguments.executes == "true" and len(problems) == 1

    def test_no_variables_value_is_quoted(self) -> None:
        text = "\n".join(wrong(env={"PASSWORD": ["hunter2"], "hunter 2": "geheim"}))
        assert "hunter2" not in text and "geheim" not in text


def test_secrets_are_found_by_their_names() -> None:
    arguments = job_arguments(
        {
            "env": {"API_TOKEN": "tok-12345", "HOME": "/home/me"},
            "container_env": {"S3_SECRET": "sec-12345", "SHORT_TOKEN": "x"},
            "conf": {"my.password": "pass-12345"},
        }
    )
    assert sorted(secrets_of(arguments)) == ["pass-12345", "sec-12345", "tok-12345"]


TEXTS = st.text(max_size=12)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.binary(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(TEXTS, st.integers()), inner)
    ),
    max_leaves=6,
)
NAMES = sorted(JOB_ARGUMENTS)


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING))
def test_whatever_is_given_is_read_or_refused_by_name(words: Dict[str, Any]) -> None:
    arguments, problems = read_arguments(dict(**words), folder="/dags")
    for problem in problems:
        assert problem.file and problem.file.partition("[")[0] in NAMES, problem
    found = [*arguments.extra.values(), *dict(arguments.shell_env).values(), *arguments.conf]
    assert all(isinstance(text, str) for text in found)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
        st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Cn"])),
        max_size=4,
    )
)
def test_variables_arrive_as_they_were(env: Dict[str, str]) -> None:
    arguments = job_arguments(
        {"executes": "true", "env": {name: text.replace("$", "") for name, text in env.items()}}
    )
    job = load_job(arguments, env={}, program=()).job
    assert dict(job.program.shell_env) == {n: t.replace("$", "") for n, t in env.items()}


def test_role_keys_are_the_tables() -> None:
    assert {"instances", "memory", "gpus", "depends-on", "resource"} <= set(role_keys())
    assert not any("<" in word for word in role_keys())


class TestCommands:
    def command(self, **words: Any) -> str:
        arguments = job_arguments(dict(roles={"worker": 1}, **words))
        return load_job(arguments, env={}, program=()).job.role("worker").command or ""

    def test_a_text_is_for_a_shell(self) -> None:
        assert self.command(executes="a && b", task_params="$X") == "a && b $X"

    @pytest.mark.parametrize(
        "hostile", ["; touch x", "$(touch x)", "`id`", "a b", "", "*", "~", "${tony.am.memory}",
                    "${env.HOME}", "'", '"', "a\nb", "\\", "x=1", "-c", "#", "!", "é"],
    )  # fmt: skip
    def test_a_list_reaches_the_program_as_it_is(self, hostile: str) -> None:
        show = "import sys; sys.stdout.write(repr(sys.argv[1:]))"
        words: Any = {"executes": [sys.executable, "-c", show, hostile, 3]}
        for more in ({}, {"task_params": [hostile, "last"]}):
            argv = [hostile, "3", *more.get("task_params", ())]
            done = subprocess.run(
                ["/bin/bash", "-c", self.command(**words, **more)],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert done.stdout == repr(argv), done.stderr

    @pytest.mark.parametrize("name", ["a=b", "if", "time", "my program", "$x"])
    def test_its_first_item_is_a_program_whatever_it_is_called(
        self, name: str, tmp_path: Path
    ) -> None:
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho run\n")
        program.chmod(0o755)
        done = subprocess.run(
            ["/bin/bash", "-c", self.command(executes=[name])],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.stdout == "run\n", done.stderr

    def test_a_script_gets_its_python(self) -> None:
        assert self.command(executes=["train.py", "a b"]) == "python3 train.py 'a b'"

    def test_what_is_no_list_of_texts_is_refused(self) -> None:
        assert "executes[1]: expected a text, not a NoneType" in wrong(executes=["a", None])
        assert wrong(executes=[]) == [
            "executes: the list has no program: its first item is the command to run"
        ]
        assert job_arguments({"executes": "a", "task_params": []}).task_params is None


class TestTemplatesAsAWhole:
    ROLES = {"worker": {"instances": 2, "memory": "1g"}, "ps": 1}

    @pytest.mark.parametrize("text", [json.dumps(ROLES), str(ROLES), f" {ROLES}\n"])
    def test_roles(self, text: str) -> None:
        message = job_arguments({"executes": "true", "roles": text})
        assert message == job_arguments({"executes": "true", "roles": self.ROLES})

    def test_the_others(self) -> None:
        words = {
            "conf": {"tony.am.memory": "1g"},
            "env": {"A": "b"},
            "container_env": {"C": "d"},
            "files": ["a", "b"],
            "tags": ["x", "y"],
        }
        plain = job_arguments(dict(**words))
        assert (
            job_arguments(dict(**{name: str(message) for name, message in words.items()})) == plain
        )
        pairs = job_arguments({"conf": "['tony.am.memory=1g']"})
        assert pairs == job_arguments({"conf": ["tony.am.memory=1g"]})
        assert job_arguments({"roles": "", "env": " "}) == job_arguments({})

    @pytest.mark.parametrize("text", ["{'worker': ", "{{ params.roles }}", "two workers", "[1]"])
    def test_what_is_none_is_refused(self, text: str) -> None:
        (message,) = wrong(roles=text)
        assert message.startswith("roles: expected a mapping like")

    @fuzz(data=mutations(str(ROLES).encode(), json.dumps(ROLES).encode()))
    def test_any_text(self, data: bytes) -> None:
        read_arguments({"roles": data.decode(errors="replace")})


def test_what_is_secret_by_its_name_is_masked_where_the_task_itself_waits() -> None:
    given = {
        "env": {"API_TOKEN": "horse-battery", "STEPS": "12345"},
        "container_env": {"DB_PASSWORD": "staple-correct"},
    }
    secrets = secrets_of(read_arguments(given)[0])
    assert set(secrets) == {"horse-battery", "staple-correct"}
    logs = Logs()
    logs.write("horse-battery\nhorse-\0battery staple-correct 12345\n")
    lines, _ = read_output(logs, view("worker:0"), {}, True, secrets)
    assert not any(secret in line for line in lines for secret in secrets), lines
    assert "12345" in lines[-1]
