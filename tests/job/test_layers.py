from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.job.loading import load, refused, warned, why, write_xml
from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.problems import JobError

WORKER = {"tony.worker.instances": "2"}


def in_folder(folder: Path, **words: object) -> Loaded:
    arguments = JobArguments(executes="python train.py", **words)  # type: ignore[arg-type]
    return load_job(arguments, conf_dir=str(folder / "conf"), env={}, cwd=str(folder), user="u")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    write_xml(tmp_path / "tony.xml", {**WORKER, "tony.worker.memory": "3g"})
    return tmp_path


def source(loaded: Loaded, key: str) -> str:
    return next(item.source for item in loaded.job.settings if item.key == key)


def test_each_layer_overrides_those_below_and_keeps_its_source(folder: Path) -> None:
    site = write_xml(folder / "conf" / "tony-site.xml", {"tony.yarn.queue": "ml"})
    assert in_folder(folder).job.queue == "ml"
    assert source(in_folder(folder), "tony.yarn.queue") == f"{site}:3"
    assert source(in_folder(folder), "tony.worker.memory") == "tony.xml:6"
    write_xml(folder / "other.xml", {**WORKER, "tony.yarn.queue": "file"})
    assert in_folder(folder, conf_file="other.xml").job.queue == "file"
    loaded = in_folder(folder, conf_file="other.xml", conf=["tony.yarn.queue=conf"])
    assert loaded.job.queue == "conf"
    assert source(loaded, "tony.yarn.queue") == "--conf"
    loaded = in_folder(folder, conf=["tony.yarn.queue=conf"], extra={"tony.yarn.queue": "argument"})
    assert loaded.job.queue == "argument"
    assert source(loaded, "tony.application.type") == "default"


def test_a_callers_defaults_are_below_the_job_file_and_above_the_site(folder: Path) -> None:
    write_xml(folder / "conf" / "tony-site.xml", {"tony.yarn.queue": "site", "tony.am.vcores": "2"})
    given = {"tony.yarn.queue": "ml", "tony.worker.memory": "9g", "tony.histroy.location": "/h"}
    with pytest.raises(JobError, match=r"prod: tony\.histroy\.location: unknown key"):
        in_folder(folder, defaults=given, defaults_from="the connection prod")
    del given["tony.histroy.location"]
    loaded = in_folder(folder, defaults=given, defaults_from="the connection prod")
    assert (loaded.job.queue, loaded.job.master.resources.vcores) == ("ml", 2)
    assert loaded.job.roles[0].resources.memory_mb == 3 * 1024
    assert source(loaded, "tony.yarn.queue") == "the connection prod"


def test_a_sites_final_word_is_over_a_callers_default(folder: Path) -> None:
    site = folder / "conf" / "tony-site.xml"
    write_xml(site, {"tony.yarn.queue": "site"}, final=True)
    with pytest.raises(JobError, match=r"tony\.yarn\.queue: is final in"):
        in_folder(folder, defaults={"tony.yarn.queue": "ml"})


def test_a_commands_own_defaults_yield_to_a_sites_final_word(folder: Path) -> None:
    site = folder / "conf" / "tony-site.xml"
    write_xml(site, {"tony.yarn.queue": "site"}, final=True)
    given = {"tony.yarn.queue": "ml", "tony.worker.memory": "9g", "tony.am.vcores": "2"}
    loaded = in_folder(folder, defaults=given, defaults_yield=True)
    assert loaded.job.queue == "site" and source(loaded, "tony.yarn.queue") == f"{site}:3"
    assert loaded.job.roles[0].resources.memory_mb == 3 * 1024, "the job file's"
    assert loaded.job.master.resources.vcores == 2 and not loaded.warnings
    with pytest.raises(JobError, match=r"--conf: tony\.yarn\.queue: is final in"):
        in_folder(folder, defaults=given, defaults_yield=True, conf=["tony.yarn.queue=ml"])


def test_final_values_of_the_site_stay(folder: Path) -> None:
    write_xml(folder / "conf" / "tony-site.xml", {"tony.yarn.queue": "ml"}, final=True)
    assert in_folder(folder, conf=["tony.yarn.queue=ml"]).job.queue == "ml"
    with pytest.raises(JobError, match=r"--conf: tony.yarn.queue: is final in .*tony-site.xml:3"):
        in_folder(folder, conf=["tony.yarn.queue=mine", "tony.yarn.queue=mine2"])


def test_a_final_list_cannot_be_added_to(folder: Path) -> None:
    settings = {"tony.containers.envs": "A=1"}
    write_xml(folder / "conf" / "tony-site.xml", settings, final=True)
    with pytest.raises(JobError, match="is final"):
        in_folder(folder, conf=["tony.containers.envs=A=1"])


def test_three_keys_append(folder: Path) -> None:
    write_xml(
        folder / "tony.xml",
        {**WORKER, "tony.containers.envs": "A=1", "tony.containers.resources": "/a"},
    )
    loaded = in_folder(
        folder,
        conf=[
            "tony.containers.envs=B=2",
            "tony.containers.envs=C=3,D=4",
            "tony.containers.resources=/b::c",
            "tony.execution.envs=X=1",
            "tony.execution.envs=Y=2",
        ],
    )
    program = loaded.job.program
    assert dict(program.container_env) == {"A": "1", "B": "2", "C": "3", "D": "4"}
    assert dict(program.shell_env) == {"X": "1", "Y": "2"}
    assert [ref.name for ref in loaded.job.files] == ["a", "c"]
    assert source(loaded, "tony.containers.envs") == "tony.xml:6, --conf"


def test_the_same_key_twice_in_a_file_warns(folder: Path) -> None:
    text = "<configuration>" + "".join(
        f"\n<property><name>tony.yarn.queue</name><value>{queue}</value></property>"
        for queue in ("one", "two")
    )
    (folder / "tony.xml").write_text(text + "</configuration>")
    loaded = in_folder(folder)
    assert loaded.job.queue == "two"
    assert "tony.xml:3: tony.yarn.queue: set twice; this replaces tony.xml:2" in [
        str(warning) for warning in loaded.warnings
    ]


def test_older_names_are_read_as_the_new_ones() -> None:
    old = {
        "tony.worker.instances": "1",
        "tony.task.registration-timeout-sec": "120",
        "tony.task.heartbeat-interval": "500",
        "tony.application.stop.on.failure.jobtypes": "worker",
    }
    loaded = load(old)
    assert loaded.job.timeouts.registration_s == 120.0
    assert loaded.job.timeouts.heartbeat_s == 0.5
    assert loaded.job.role("worker").stop_on_failure
    assert "tony.task.heartbeat-interval (--conf) is now tony.task.heartbeat-interval-ms" in warned(
        old
    )


def test_the_modern_name_wins_in_a_file(folder: Path) -> None:
    write_xml(
        folder / "tony.xml",
        {
            **WORKER,
            "tony.task.executor.execution-timeout-ms": "60000",
            "tony.worker.timeout": "0",
        },
    )
    assert in_folder(folder).job.timeouts.execution_s == 60.0


def test_unknown_keys_are_refused_with_a_suggestion() -> None:
    text = why({**WORKER, "tony.aplication.name": "x", "tony.worker.memroy": "2g"})
    assert "--conf: tony.aplication.name: unknown key (did you mean tony.application.name?)" in text
    assert "--conf: tony.worker.memroy: unknown key (did you mean tony.worker.memory?)" in text
    assert "tony.worker.resource.fpga" in why({**WORKER, "tony.worker.fpga": "1"})


def test_other_keys_are_let_through_and_near_ones_warn() -> None:
    assert warned({"fs.defaultFS": "hdfs://nn"}) == ""
    assert "does not begin with tony." in warned({"tonny.worker.instances": "1"})


def test_keys_of_no_effect_are_one_warning() -> None:
    text = warned({"tony.https.port": "1", "tony.am.jvm.opts": "-X", "tony.secret.key": "s3cret"})
    assert [line for line in text.splitlines() if "of no effect" in line] == [
        "of no effect here: tony.https.port (--conf), tony.secret.key (--conf): for the JVM TonY's"
        " portal; the one here has a settings file of its own; tony.am.jvm.opts (--conf): options"
        " of a JVM; there is none"
    ]


@pytest.mark.parametrize("word", ["tony.yarn.queue", "=x", " = "])
def test_conf_without_key_or_value(word: str) -> None:
    with pytest.raises(JobError, match="is not key=value"):
        load_job(JobArguments(executes="x", conf=[word]), env={}, cwd="/")


@pytest.mark.parametrize("bad", ["a\x00b", "a\x1bb", "a\udcffb", "a\x7f"])
def test_control_characters_are_refused(bad: str) -> None:
    assert "holds a control character" in why({"tony.application.name": bad})
    assert "control characters" in why({f"tony.{bad}.instances": "1"})


def test_a_newline_in_a_key_injects_nothing() -> None:
    assert "is not a key" in why({"tony.yarn.queue\ntony.am.memory": "1"})


def test_a_huge_value_is_refused() -> None:
    assert "longer than" in why({"tony.application.name": "x" * 300_000})


def test_all_problems_at_once() -> None:
    problems = refused(
        {
            "tony.worker.instances": "two",
            "tony.worker.memory": "lots",
            "tony.nonsense": "1",
            "tony.task.port-range": "9-1",
            "tony.docker.enabled": "maybe",
        }
    )
    assert {problem.key for problem in problems} == {
        "tony.worker.instances",
        "tony.worker.memory",
        "tony.nonsense",
        "tony.task.port-range",
        "tony.docker.enabled",
    }


def test_a_missing_job_file_and_a_folder_instead_of_one(folder: Path) -> None:
    with pytest.raises(JobError, match=r"gone.xml: cannot be read: No such file"):
        in_folder(folder, conf_file="gone.xml")
    with pytest.raises(JobError, match=r"conf: cannot be read: Is a directory"):
        in_folder(folder, conf_file="conf")


def test_a_missing_job_file_is_reported_with_its_folder_and_a_suggestion(folder: Path) -> None:
    (folder / "mnist.xml").touch()
    for name, words in (
        ("mnits.xml", f"No such file or directory in {folder} (did you mean mnist.xml?)"),
        ("jobs/mnist.xml", f"No such file or directory (and no folder {folder}/jobs)"),
    ):
        with pytest.raises(JobError, match=re.escape(f"{name}: cannot be read: {words}")):
            in_folder(folder, conf_file=name)


def test_a_remote_job_file_needs_a_reader() -> None:
    arguments = JobArguments(executes="x", conf_file="hdfs://nn/tony.xml")
    with pytest.raises(JobError, match="no file system for it"):
        load_job(arguments, env={}, cwd="/")
    one = b"<property><name>tony.yarn.queue</name><value>far</value></property>"
    data = b"<configuration>" + one + b"</configuration>"
    asked = []

    def read(url: str) -> bytes:
        asked.append(url)
        return data

    loaded = load_job(arguments, env={}, cwd="/", read_bytes=read)
    assert loaded.job.queue == "far"
    assert asked == ["hdfs://nn/tony.xml"]
    assert loaded.job.settings[0].source == "hdfs://nn/tony.xml:1"


def test_no_site_file_and_no_job_file(tmp_path: Path) -> None:
    loaded = load_job(
        JobArguments(executes="true"), env={"TONY_CONF_DIR": str(tmp_path)}, cwd=str(tmp_path)
    )
    assert loaded.job.roles[0].name == "worker"
