"""What a job takes along for its tracker, from whose environment, and for which server alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping

import pytest

from tony_core.job.jsonfile import job_from_json, job_to_json
from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.mask import MASK, KnownSecrets, job_secrets
from tony_core.job.problems import JobError
from tony_core.job.spec import Mlflow

URI = "https://mlflow.example:8443/base"
TOKEN = "a-token-of-mine"


def load(env: Mapping[str, str] = {}, shell_env: List[str] = [], **conf: str) -> Loaded:  # noqa: B006
    keys = {f"tony.mlflow.{name.replace('_', '-')}": value for name, value in conf.items()}
    arguments = JobArguments(
        executes="true", conf={"tony.worker.instances": "1", **keys}, shell_env=shell_env
    )
    return load_job(arguments, env=env, conf_dir="", program=())


def test_no_tracker_unless_asked_for() -> None:
    loaded = load({"MLFLOW_TRACKING_URI": URI, "MLFLOW_TRACKING_TOKEN": TOKEN})
    assert loaded.job.mlflow == Mlflow()
    assert TOKEN not in job_to_json(loaded.job)


def test_the_keys() -> None:
    job = load(tracking_uri=URI, experiment="exp", run_name="r").job
    assert job.mlflow[:3] == (URI, "exp", "r")
    assert load(tracking_uri=URI).job.mlflow.experiment == "Default"


def test_credentials_of_the_environment_are_for_its_own_server() -> None:
    env = {
        "MLFLOW_TRACKING_URI": "https://MLFLOW.example:8443/base/",
        "MLFLOW_TRACKING_TOKEN": TOKEN,
    }
    loaded = load(env, tracking_uri=URI)
    assert loaded.job.mlflow.token == TOKEN and not loaded.warnings


@pytest.mark.parametrize(
    "named",
    [
        "",
        "https://mlflow.example",
        "http://mlflow.example:8443/base",
        "https://x:8443/base",
        "sqlite:",
    ],
)
def test_no_other_server_gets_them(named: str) -> None:
    env = {"MLFLOW_TRACKING_URI": named, "MLFLOW_TRACKING_TOKEN": TOKEN}
    loaded = load(env, tracking_uri=URI)
    assert loaded.job.mlflow.token == ""
    (warning,) = loaded.warnings
    assert "MLFLOW_TRACKING_TOKEN" in str(warning) and TOKEN not in str(warning)


def test_what_programs_get_the_master_has_too() -> None:
    given = ["MLFLOW_TRACKING_USERNAME=ann", "MLFLOW_TRACKING_PASSWORD=hunter22"]
    mlflow = load(shell_env=given, tracking_uri=URI).job.mlflow
    assert (mlflow.username, mlflow.password) == ("ann", "hunter22")


def test_what_a_program_needs_for_its_own_tracker_goes_to_no_other() -> None:
    given = ["MLFLOW_TRACKING_URI=https://team.example", f"MLFLOW_TRACKING_TOKEN={TOKEN}"]
    assert load(shell_env=given, tracking_uri=URI).job.mlflow.token == ""
    given = [f"MLFLOW_TRACKING_URI={URI}", f"MLFLOW_TRACKING_TOKEN={TOKEN}"]
    assert load(shell_env=given, tracking_uri=URI).job.mlflow.token == TOKEN


def test_they_are_masked_and_travel() -> None:
    env = {"MLFLOW_TRACKING_URI": URI, "MLFLOW_TRACKING_TOKEN": TOKEN}
    job = load(env, tracking_uri=URI).job
    assert job_from_json(job_to_json(job)).mlflow.token == TOKEN
    assert TOKEN not in repr(job)
    assert not [item for item in job.settings if TOKEN in item.value]
    assert KnownSecrets(job_secrets(job)).mask(f"x {TOKEN} y") == f"x {MASK} y"


def test_credentials_without_tls_are_warned_of() -> None:
    uri = "http://mlflow.example"
    env = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_TRACKING_TOKEN": TOKEN}
    (warning,) = load(env, tracking_uri=uri).warnings
    assert "without TLS" in str(warning)


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"tracking_uri": "mlflow.example"}, "expected the address"),
        ({"tracking_uri": "file:///tmp/mlruns"}, "expected the address"),
        ({"tracking_uri": "databricks"}, "expected the address"),
        ({"tracking_uri": "https://ann:secret99@h"}, "must not hold a name or password"),
        ({"tracking_uri": "https://h:99999"}, "not a URL"),
        ({"tracking_uri": "https://h/?x=1"}, "no ?, #"),
        ({"tracking_uri": URI, "experiment": "x" * 600}, "1 to 500"),
        ({"tracking_uri": URI, "ca_file": "/nowhere.pem"}, "no certificate"),
    ],
)
def test_mistakes_are_named_before_anything_starts(conf: Dict[str, Any], words: str) -> None:
    with pytest.raises(JobError) as caught:
        load(**conf)
    assert words in str(caught.value) and "secret99" not in str(caught.value)


def test_only_certificates_of_the_ca_file_travel(tmp_path: Path) -> None:
    certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    path = tmp_path / "ca.pem"
    path.write_text(f"a secret\n-----BEGIN KEY-----\n{certificate}")
    job = load(tracking_uri=URI, ca_file=str(path)).job
    assert job.mlflow.ca_pem == certificate


def test_no_role_is_called_mlflow() -> None:
    with pytest.raises(JobError, match="mlflow"):
        load_job(
            JobArguments(executes="true", conf={"tony.mlflow.instances": "1"}), env={}, conf_dir="",
            program=(),
        )  # fmt: skip
