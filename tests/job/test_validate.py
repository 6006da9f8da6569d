from __future__ import annotations

from typing import Any, Dict, List

import pytest

from tests.job.loading import CWD, job, load, refused, warned, why
from tony_core.job.keys.table import RESERVED_ROLES
from tony_core.job.limits import check_limits
from tony_core.job.load import JobArguments, load_job
from tony_core.job.problems import JobError, Problem, Severity
from tony_core.job.spec import Job, Limits, RestartScope
from tony_core.job.validate import missing_sources

WORKER = {"tony.worker.instances": "2"}


@pytest.mark.parametrize("word", sorted(RESERVED_ROLES - {"driver", "https", "version-info"}))
def test_reserved_words_are_no_roles(word: str) -> None:
    text = why({f"tony.{word}.instances": "1"})
    assert f"{word!r} is a reserved word, not a role" in text


def test_driver_is_a_reserved_word_too() -> None:
    for key, value in (("instances", "2"), ("command", "python d.py")):
        text = why({**WORKER, f"tony.driver.{key}": value})
        assert "'driver' is a reserved word, not a role" in text and f"tony.driver.{key}" in text
    load({**WORKER, "tony.driver.instances": "0", "tony.driver.vcores": "1"})


def test_a_horovod_driver_of_the_jobs_own_is_refused_once() -> None:
    """The shape of the JVM TonY's example of its debug mode."""
    horovod = {
        "tony.worker.instances": "4",
        "tony.application.framework": "horovod",
        "tony.driver.instances": "1",
        "tony.driver.vcores": "2",
        "tony.application.untracked.jobtypes": "driver",
        "tony.driver.command": "python my_driver.py -t -p 9999",
    }
    debug = "tony.horovod.driver.mode.debug"
    (problem,) = refused({**horovod, debug: "true"})
    assert f"{debug}: a Horovod driver of the job's own is not run" in str(problem)
    for more in ({}, {debug: "false"}):
        assert [role.name for role in load({**horovod, **more}).job.roles] == ["worker"]


@pytest.mark.parametrize("name", ["Worker", "1st", "-a", "wörker", "a_b", "x" * 65])
def test_role_names(name: str) -> None:
    assert "is no role name" in why({f"tony.{name}.instances": "1"})


def test_role_keys_without_instances() -> None:
    text = why({**WORKER, "tony.wroker.memory": "4g", "tony.wroker.gpus": "1"})
    assert text == (
        "--conf: tony.wroker.memory: tony.wroker.instances is not set: of no effect without it"
        " (did you mean worker?)"
    )
    assert "(did you mean worker?)" in why({"tony.wroker.memory": "4g"})


def test_a_role_without_instances_is_no_role() -> None:
    keys = {**WORKER, "tony.ps.memory": "3g", "tony.docker.ps.image": "i:1"}
    text = warned({**keys, "tony.application.group.g": "worker,ps"})
    assert text == (
        "--conf: tony.ps.memory: tony.ps.instances is not set, so the job has no ps and this has no"
        " effect; for one task write tony.ps.instances=1\n"
        "--conf: tony.docker.ps.image: there is no role 'ps'"
    )
    assert [role.name for role in job(keys).roles] == ["worker"]
    assert "(did you mean worker?)" in why({**WORKER, "tony.docker.wroker.image": "i:1"})


def test_only_a_job_that_describes_a_role_may_wait_for_it_without_tasks(tmp_path: Any) -> None:
    from tests.job.loading import write_xml

    write_xml(
        tmp_path / "tony-site.xml", {"tony.prep.max-instances": "2", "tony.prep.memory": "1g"}
    )
    waits = {**WORKER, "tony.worker.depends-on": "prep"}
    arguments = JobArguments(executes="x", conf=waits)
    with pytest.raises(JobError, match="there is no role 'prep'"):
        load_job(arguments, conf_dir=str(tmp_path), env={}, cwd=CWD)
    assert job({**waits, "tony.prep.memory": "1g"}).role("worker").depends_on == ()


def test_keys_of_a_worker_describe_the_single_task() -> None:
    loaded = load({"tony.worker.memory": "5g", "tony.am.memory": "3g"})
    assert [str(warning) for warning in loaded.warnings] == [
        "--conf: tony.worker.memory: tony.worker.instances is not set: the job is one single task,"
        " and this describes it"
    ]
    assert loaded.job.role("worker").resources.memory_mb == 5120


def test_an_unreadable_value_without_instances_is_one_problem() -> None:
    text = why({"tony.worker.memory": "4x"})
    assert text.startswith("--conf: tony.worker.memory: '4x' is not a memory size")
    assert len(text.splitlines()) == 1


def test_megabytes_that_are_meant_as_gigabytes() -> None:
    text = warned({**WORKER, "tony.worker.memory": "8"})
    assert text == "--conf: tony.worker.memory: '8' is 8 MB; for gigabytes write 8g"
    for memory in ("8m", "64", "8g"):
        assert warned({**WORKER, "tony.worker.memory": memory}) == ""


def test_a_role_one_letter_from_a_well_known_one_warns() -> None:
    for name in ("wroker", "workr", "workers", "evaluater", "chef"):
        assert "is one letter from the well-known" in warned({f"tony.{name}.instances": "1"})
    for name in ("worker", "reader", "p", "learner"):
        assert warned({f"tony.{name}.instances": "1"}) == ""


def test_cycles_are_named() -> None:
    keys = {f"tony.{name}.instances": "1" for name in "abc"}
    keys.update({"tony.a.depends-on": "b", "tony.b.depends-on": "c", "tony.c.depends-on": "a"})
    assert "--conf: tony.a.depends-on: roles wait for each other: a -> b -> c -> a" in why(keys)
    assert "a -> a" in why({"tony.a.instances": "1", "tony.a.depends-on": "a"})


def test_a_long_chain_is_no_cycle() -> None:
    keys = {f"tony.r{i}.instances": "1" for i in range(300)}
    keys.update({f"tony.r{i}.depends-on": f"r{i + 1}" for i in range(299)})
    assert len(job(keys).roles) == 300


def test_nothing_to_wait_for() -> None:
    assert "nothing to wait for: ps" in why({"tony.ps.instances": "1"})


def test_one_chief_that_is_tracked() -> None:
    assert "only one chief, not 2" in why({"tony.chief.instances": "2"})
    keys = {**WORKER, "tony.chief.instances": "1"}
    assert "so it must be tracked" in why({**keys, "tony.application.sidecar.jobtypes": "chief"})


def test_no_command() -> None:
    assert "no command for worker, a: give --executes" in why(
        {**WORKER, "tony.a.instances": "1"}, command=""
    )
    loaded = load_job(JobArguments(), env={}, cwd=CWD, needs_command=False)
    assert [warning.severity for warning in loaded.warnings] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("tony.worker.instances", "100001", "more than 100000"),
        ("tony.worker.instances", "-1", "expected 0 or more"),
        ("tony.worker.instances", "1.5", "whole number"),
        ("tony.worker.instances", "9" * 25, "too many digits"),
        ("tony.worker.memory", "1000t", "than one container can have"),
        ("tony.worker.memory", "2 apples", "not a memory size"),
        ("tony.worker.vcores", "0", "expected 1 or more"),
        ("tony.worker.vcores", "99999", "than one container can have"),
        ("tony.worker.gpus", "5000", "than one container can have"),
        ("tony.am.memory", "900t", "than one container can have"),
        ("tony.task.heartbeat-interval-ms", "1", "at least 10 ms"),
        ("tony.task.max-missed-heartbeats", "0", "expected 1 or more"),
        ("tony.portal.url", "ftp://portal", "not an http"),
        ("tony.portal.url", "http://", "names no host"),
        ("tony.application.checkpoint-dir", "http://[x", "not a URL"),
        ("tony.application.checkpoint-dir", "webhdfs://nn:99999/x", "not a URL"),
        ("tony.history.location", "file://host/x", "three slashes"),
        ("tony.containers.resources", "http:///x", "names no host"),
        ("tony.worker.min-instances", "3", "3 are more than tony.worker.instances (2)"),
        ("tony.worker.min-instances", "0", "expected 1 or more"),
        ("tony.worker.restart-scope", "role", "one of session, task"),
        ("tony.execution.env.A-B", "1", "not a name for a variable"),
        ("tony.task.max-total-gpus", "many", "whole number"),
        ("tony.worker.resource.fpga", "x", "whole number"),
    ],
)
def test_bad_values(key: str, value: str, wrong: str) -> None:
    problems = refused({**WORKER, key: value})
    assert all(problem.file == "--conf" for problem in problems)
    assert wrong in "\n".join(problem.message for problem in problems if problem.key == key)


def test_a_silence_that_any_process_may_keep_is_no_loss() -> None:
    short = {"tony.task.heartbeat-interval-ms": "10", "tony.task.max-missed-heartbeats": "4"}
    (problem,) = refused({**WORKER, **short})
    assert problem.key == "tony.task.max-missed-heartbeats"
    assert "40 ms" in problem.message and "at least 50 ms" in problem.message


def test_elastic_keys_that_ask_for_nothing_new() -> None:
    job({**WORKER, "tony.worker.min-instances": "2", "tony.worker.restart-scope": "session"})


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"tony.application.distributed-mode": "FCFS"}, "only a gang is elastic"),
        ({"tony.application.sidecar.jobtypes": "worker"}, "only a tracked role is elastic"),
        ({"tony.last.instances": "1", "tony.last.depends-on": "worker"}, "last wait for every"),
        ({"tony.application.elastic-interval": "1h"}, "their executors give up"),
    ],
)
def test_what_cannot_be_elastic(more: Dict[str, str], wrong: str) -> None:
    problems = refused({**WORKER, "tony.worker.min-instances": "1", **more})
    assert wrong in "\n".join(problem.message for problem in problems)


def test_a_role_with_task_restart() -> None:
    made = job({**WORKER, "tony.worker.restart-scope": "task", "tony.worker.max-restarts": "5"})
    (worker,) = made.roles
    assert (worker.restart_scope, worker.max_restarts) == (RestartScope.TASK, 5)


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"tony.worker.min-instances": "1", "tony.worker.restart-scope": "task"}, "is elastic"),
        ({"tony.chief.instances": "1", "tony.chief.restart-scope": "task"}, "depend on the chief"),
    ],
)
def test_roles_without_task_restart(more: Dict[str, str], wrong: str) -> None:
    (problem,) = refused({**WORKER, **more})
    assert wrong in problem.message and (problem.key or "").endswith(".restart-scope")


def test_an_elastic_role() -> None:
    worker = job({**WORKER, "tony.worker.min-instances": "1"}).role("worker")
    assert (worker.least, worker.instances, worker.is_elastic) == (1, 2, True)


def test_caps() -> None:
    caps = {
        "tony.task.max-total-instances": "3",
        "tony.task.max-total-memory": "4g",
        "tony.task.max-total-gpus": "-1",
        "tony.task.max-total-fpga": "1",
        "tony.worker.max-instances": "1",
        "tony.other-role.max-instances": "1",
    }
    job({"tony.worker.instances": "1", **caps})
    text = why({"tony.worker.instances": "4", "tony.worker.resource.fpga": "1", **caps})
    assert text.splitlines() == [
        "--conf: tony.task.max-total-instances: the job asks for 4 instances in all,"
        " at most 3 allowed",
        "--conf: tony.task.max-total-memory: the job asks for 8g memory in all, at most 4g allowed",
        "--conf: tony.task.max-total-fpga: the job asks for 4 fpga in all, at most 1 allowed",
        "--conf: tony.worker.max-instances: the job asks for 4 instances, at most 1 allowed",
    ]


def test_the_master_checks_caps_again() -> None:
    made = job(WORKER).replace(limits=Limits(total_instances=1))
    assert [problem.key for problem in check_limits(made)] == ["tony.task.max-total-instances"]


def test_frameworks_are_asked() -> None:
    def picky(made: Job) -> List[Problem]:
        return [Problem(f"exactly one instance, not {made.tracked_tasks}", "tony.worker.instances")]

    def load_as(framework: str, **more: str) -> Any:
        conf = {**WORKER, "tony.application.framework": framework, **more}
        arguments = JobArguments(executes="x", conf=conf)
        frameworks: Dict[str, Any] = {"tensorflow": lambda made: [], "standalone": picky}
        return load_job(arguments, env={}, cwd=CWD, frameworks=frameworks)

    load_as("TensorFlow")
    with pytest.raises(JobError, match="exactly one instance, not 2"):
        load_as("standalone")
    with pytest.raises(JobError, match=r"unknown framework.*\(did you mean tensorflow\?\)"):
        load_as("tensorflw")


def test_a_framework_is_named_among_all_other_problems() -> None:
    def asked(job: Job) -> List[Problem]:
        return [
            Problem("not built yet", "tony.application.framework"),
            Problem("too many workers", "tony.worker.instances"),
        ]

    words = ["tony.worker.instances=many", "tony.application.framework=horovod"]
    with pytest.raises(JobError) as caught:
        load_job(JobArguments(executes="x", conf=words), env={}, frameworks={"horovod": asked})
    text = str(caught.value)
    assert "tony.worker.instances" in text
    assert "not built yet" in text
    assert "too many" not in text


def test_a_name_shows_no_secret() -> None:
    named = job({**WORKER, "tony.application.name": "http://ann:secret@host/"})
    assert "secret" not in named.name


def test_missing_local_files() -> None:
    keys = {
        **WORKER,
        "tony.containers.resources": "/there,/gone,hdfs://nn/x",
        "tony.worker.resources": "gone2",
        "tony.am.resources": "/gone3",
    }
    made = job(keys, src_dir="src", python_venv="http://h/v.zip", hdfs_classpath="/any/path")
    asked = {"/there"}
    assert [str(problem) for problem in missing_sources(made, asked.__contains__)] == [
        f"--src_dir: tony.client.src-dir: {CWD}/src does not exist"
        f" (src is taken from the folder you submit from, {CWD})",
        "--conf: tony.containers.resources: /gone does not exist",
        "--conf: tony.am.resources: /gone3 does not exist",
        f"--conf: tony.worker.resources: {CWD}/gone2 does not exist"
        f" (gone2 is taken from the folder you submit from, {CWD})",
    ]


def test_a_site_may_set_the_size_of_a_worker(tmp_path: Any) -> None:
    from tests.job.loading import write_xml

    write_xml(tmp_path / "tony-site.xml", {"tony.worker.memory": "4g", "tony.ps.memory": "3g"})
    arguments = JobArguments(executes="x", conf=WORKER)
    loaded = load_job(arguments, conf_dir=str(tmp_path), env={}, cwd=CWD)
    assert loaded.job.role("worker").resources.memory_mb == 4096
    assert loaded.warnings == ()


def test_an_error_prints_one_line_each() -> None:
    error = JobError([Problem("is bad", "k", "f", 3), Problem("worse"), Problem("x", file="f")])
    assert str(error) == "f:3: k: is bad\nworse\nf: x"


def test_a_good_job_has_no_warnings() -> None:
    assert load(WORKER).warnings == ()


def test_a_stall_timeout_that_no_program_could_keep_is_refused() -> None:
    text = why({**WORKER, "tony.task.stall-timeout": "500ms"})
    assert text == (
        "--conf: tony.task.stall-timeout: 0.5s is too short; expected 1s or more, or off"
    )
    assert "is too short" in why({**WORKER, "tony.worker.stall-timeout": "100ms"})
    for key in ("tony.task.stall-timeout", "tony.worker.stall-timeout"):
        for negative in ("-5s", "-1s", "-2"):
            assert f"{negative!r} is not a duration" in why({**WORKER, key: negative})
    assert "did you mean" in why({**WORKER, "tony.task.stall-action": "restrat"})


def test_a_roles_own_stall_timeout_wins() -> None:
    keys = {**WORKER, "tony.ps.instances": "1", "tony.task.stall-timeout": "15m"}
    made = job({**keys, "tony.ps.stall-timeout": "60"})
    assert {role.name: made.stall_timeout(role) for role in made.roles} == {
        "worker": 900.0,
        "ps": 60.0,
    }
    for word in ("off", "0", "-1", "0s"):
        made = job({**keys, "tony.worker.stall-timeout": word})
        assert [made.stall_timeout(role) for role in made.roles] == [None, None]
        made = job({**WORKER, "tony.task.stall-timeout": word})
        assert [made.stall_timeout(role) for role in made.roles] == [None]
    assert job(WORKER).stall_timeout(job(WORKER).roles[0]) is None
