"""XML and JSON of a job, the job a program builds, and what the nodes may import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.loading import CWD, SAMPLES, load
from tony_core.job import job as program_job
from tony_core.job.jsonfile import job_from_json, job_to_json
from tony_core.job.load import JobArguments, job_from_xml, load_job
from tony_core.job.mask import mask_settings
from tony_core.job.problems import JobError
from tony_core.job.spec import Job, Setting, TokenRefresh
from tony_core.job.xmlfile import job_to_xml

CHECKOUT = Path(__file__).resolve().parents[2]
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff\x7f"),
    min_size=1,
    max_size=20,
).filter(lambda text: text.strip() and "${" not in text)
ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff\x7f"),
        st.sampled_from("\n\t\r,\\ =<>&]"),
    ),
    max_size=20,
).filter(lambda text: "${" not in text)
JOBS = st.fixed_dictionaries(
    {"tony.worker.instances": st.integers(0, 50).map(str)},
    optional={
        "tony.worker.command": TEXT,
        "tony.worker.memory": st.integers(1, 10**6).map(lambda mb: f"{mb}m"),
        "tony.worker.gpus": st.integers(0, 8).map(str),
        "tony.ps.instances": st.integers(0, 3).map(str),
        "tony.evaluator.instances": st.integers(1, 3).map(str),
        "tony.evaluator.depends-on": st.just("prep"),
        "tony.prep.instances": st.integers(1, 2).map(str),
        "tony.application.name": TEXT,
        "tony.application.timeout": st.integers(1, 10**6).map(str),
        "tony.application.tags": st.just("a,b"),
        "tony.application.tensorboard-log-dir": st.sampled_from(["/l", "hdfs://nn/l"]),
        "tony.execution.env.A": ANY_TEXT,
        "tony.containers.env.B": ANY_TEXT,
        "tony.containers.resources": st.sampled_from(["x", "x::y,z#archive"]),
        "tony.task.port-range": st.just("100-200"),
        "tony.am.memory": st.sampled_from(["1g", "3g"]),
        "tony.docker.am.image": TEXT,
        "tony.docker.containers.image": st.just("i:1"),
        "tony.docker.enabled": st.sampled_from(["true", "false"]),
        "some.other.key": ANY_TEXT,
    },
)


def made(settings: Dict[str, str]) -> Job | None:
    try:
        return load(settings, container_env=["C= x "], shell_env={"D": "a,b\n"}).job
    except JobError:
        return None


@given(JOBS)
def test_json_round_trip(settings: Dict[str, str]) -> None:
    one = made(settings)
    if one is not None:
        other = job_from_json(job_to_json(one))
        assert other == one
        assert other.settings == one.settings


@given(JOBS)
def test_xml_round_trip(settings: Dict[str, str]) -> None:
    one = made(settings)
    if one is not None:
        xml = job_to_xml(one, masked=False)
        assert job_from_xml(xml, user=one.user, cwd=CWD) == one


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "1", '{"format": 2}', '{"format": 1}', '{"format": 1, "job": {"name": 1}}',
     '{"format": 1, "job": {"name": "x"}}', '{"format": 1, "job": {"name": "x", "roles": [1]}}',
     '{"format": 1, "job": {"name": "x", "roles": [], "new": 1}}', "[" * 100_000,
     '{"format": 1, "job": {"name": "x", "roles": [], "mode": "?"}}',
     '{"format": 1, "job": {"name": "x", "roles": [], "groups": [["a"]]}}',
     '{"format": 1, "job": {"name": "x", "roles": [], "timeouts": {"heartbeat_s": true}}}'],
)  # fmt: skip
def test_what_is_no_job_in_json(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        job_from_json(text)


def test_a_whole_number_is_a_duration_too() -> None:
    outer = json.loads(job_to_json(Job(name="x", roles=())))
    outer["job"]["timeouts"]["heartbeat_s"] = 1
    back = job_from_json(json.dumps(outer)).timeouts.heartbeat_s
    assert isinstance(back, float)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.xml")), ids=lambda path: path.stem)
def test_samples_load(sample: Path) -> None:
    arguments = JobArguments(executes="python t.py", conf_file=str(sample))
    loaded = load_job(arguments, env={}, cwd=CWD, user="u")
    xml = job_to_xml(loaded.job, masked=False)
    assert job_from_xml(xml, user="u", cwd=CWD) == loaded.job
    assert job_from_json(job_to_json(loaded.job)) == loaded.job


def test_the_keys_without_effect_in_every_default_are_one_warning() -> None:
    sample = SAMPLES / "every-default.xml"
    arguments = JobArguments(executes="python t.py", conf_file=str(sample))
    loaded = load_job(arguments, env={}, cwd=CWD)
    texts = [str(warning) for warning in loaded.warnings]
    assert len([text for text in texts if text.startswith("of no effect here")]) == 1
    assert [text for text in texts if "set twice" not in text and "of no effect" not in text] == [
        text for text in texts if text.startswith("older names of keys")
    ]
    assert loaded.job.history.portal_url is None  # the sample value of a default
    assert loaded.job.fail_on_worker_failure is False
    assert loaded.job.timeouts.registration_s == 300.0


def test_the_parameter_server_sample() -> None:
    arguments = JobArguments(executes="python t.py", conf_file=str(SAMPLES / "mnist.xml"))
    job = load_job(arguments, env={}, cwd=CWD).job
    assert [(role.name, role.instances) for role in job.roles] == [("worker", 4), ("ps", 2)]
    assert job.files[0].archive
    assert job.settings[1] == Setting("tony.worker.instances", "4", f"{SAMPLES}/mnist.xml:10")


def test_a_program_builds_the_same_job() -> None:
    by_program = program_job(
        "x",
        {
            "worker": {
                "resource": {"yarn.io/fpga": 1},
                "instances": 2,
                "memory": "2g",
                "depends_on": ["prep"],
            },
            "prep": {"instances": 1},
        },
        command="python train.py",
        env={"A": "1,2"},
        conf={"tony.docker.enabled": False, "tony.containers.envs": {"B": "3,4"}},
        conf_dir="",
        cwd=CWD,
        user="tester",
    )
    by_words = load(
        {
            "tony.application.name": "x",
            "tony.worker.instances": "2",
            "tony.worker.resource.yarn.io/fpga": "1",
            "tony.worker.depends-on": "prep",
            "tony.prep.instances": "1",
            "tony.containers.envs": "B=3\\,4",
        },
        shell_env=["A=1,2"],
    ).job
    assert by_program == by_words
    with pytest.raises(JobError, match=r"program: tony.worker.memory: 'lots' is not"):
        program_job("x", {"worker": {"instances": 1, "memory": "lots"}}, command="x", conf_dir="")


def test_secrets_are_masked_unless_asked_for() -> None:
    xml = job_to_xml(load({"my.password": "hunter2"}).job)
    assert "hunter2" not in xml
    assert "<name>my.password</name>" in xml


NODE_MODULES = ("spec", "jsonfile", "problems", "limits", "mask", "units", "keys.table")


def test_nodes_need_the_standard_library_only() -> None:
    code = (
        "import sys\n"
        + "".join(f"import tony_core.job.{name}\n" for name in (*NODE_MODULES, "")).replace(
            "tony_core.job.\n", "tony_core.job\n"
        )
        + (
            "from tony_core.job.jsonfile import job_from_json, job_to_json\n"
            "from tony_core.job.spec import Job\n"
            "assert job_from_json(job_to_json(Job('x', ()))) == Job('x', ())\n"
            "assert 'lxml' not in sys.modules\n"
        )
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_grammar_is_that_of_python_3_9() -> None:
    for name in NODE_MODULES:
        path = CHECKOUT.joinpath("tony_core", "job", *name.split(".")).with_suffix(".py")
        ast.parse(path.read_text(), feature_version=(3, 9))


def test_names_of_the_package() -> None:
    import tony_core.job as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined]  # noqa: B018


class TestLogins:
    """tony.kerberos.principal and tony.kerberos.keytab, from whichever layer."""

    KEYS = {"tony.kerberos.principal": "ann", "tony.kerberos.keytab": "/of/job.keytab"}

    def test_the_command_line_goes_first(self) -> None:
        arguments = JobArguments(executes="x", conf=self.KEYS, principal="bob", keytab="bob.keytab")
        found = load_job(arguments, env={}, cwd="/home/bob").job.hadoop
        assert (found.principal, found.keytab) == ("bob", "/home/bob/bob.keytab")

    def test_the_job_goes_before_the_site(self) -> None:
        site = dict.fromkeys(self.KEYS, "/of/site")
        arguments = JobArguments(executes="x", conf=self.KEYS, defaults=site)
        found = load_job(arguments, env={}, cwd="/").job.hadoop
        assert (found.principal, found.keytab) == ("ann", "/of/job.keytab")

    @pytest.mark.parametrize("key", KEYS)
    def test_both_or_none(self, key: str) -> None:
        with pytest.raises(JobError, match=f"{key}: is set and tony.kerberos.* is not"):
            load_job(JobArguments(executes="x", conf={key: "x"}), env={}, cwd="/")

    def test_a_keytab_is_a_local_file(self) -> None:
        conf = {**self.KEYS, "tony.kerberos.keytab": "hdfs://nn/k"}
        with pytest.raises(JobError, match="hdfs://nn/k is not a file of this machine"):
            load_job(JobArguments(executes="x", conf=conf), env={}, cwd="/")

    SHIPS = {**KEYS, "tony.kerberos.ship-keytab": "true", "tony.scheduler": "yarn"}

    def test_a_shipped_keytab_switches_tls_on(self) -> None:
        job = load_job(JobArguments(executes="x", conf=self.SHIPS), env={}, cwd="/").job
        assert job.hadoop.ship_keytab and job.network.tls
        assert job.hadoop.refresh is TokenRefresh.LEAVE
        (shown,) = [item for item in job.settings if item.key == "tony.task.tls"]
        assert (shown.value, shown.source) == ("true", "tony.kerberos.ship-keytab")
        for less in ({"tony.scheduler": "local"}, {"tony.kerberos.ship-keytab": "false"}):
            conf = {**self.SHIPS, **less}
            job = load_job(JobArguments(executes="x", conf=conf), env={}, cwd="/").job
            assert not job.network.tls

    def test_a_shipped_keytab_and_no_tls(self) -> None:
        conf = {**self.SHIPS, "tony.task.tls": "false"}
        with pytest.raises(JobError, match="is false, and with"):
            load_job(JobArguments(executes="x", conf=conf), env={}, cwd="/")

    def test_a_restart_for_fresh_tokens_that_never_come(self) -> None:
        conf = {"tony.kerberos.refresh": "restart"}
        loaded = load_job(JobArguments(executes="x", conf=conf), env={}, cwd="/")
        assert any("of no effect without tony.kerberos.ship" in str(w) for w in loaded.warnings)
        with pytest.raises(JobError, match=r"tony.kerberos.refresh"):
            conf = {"tony.kerberos.refresh": "sometimes"}
            load_job(JobArguments(executes="x", conf=conf), env={}, cwd="/")

    def test_the_path_is_no_secret(self) -> None:
        job = load_job(JobArguments(executes="x", conf=self.KEYS), env={}, cwd="/").job
        shown = {item.key: item.value for item in mask_settings(job.settings)}
        assert shown["tony.kerberos.keytab"] == "/of/job.keytab"
