"""The flows to copy: what lies in dags/examples/azkaban fits together, and goes up whole."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Dict

import pytest
import yaml

from dags.examples.azkaban import upload
from tony_azkaban.java_properties import load

FLOWS = Path(upload.__file__).parent
PROGRAMS = FLOWS.parent / "retraining" / "programs"
WORDS = {"type", "dependencies", "executes", "src_dir", "task_params", "command", "retries"}
WORDS |= {"retry.backoff", "azkaban.input.dataset", "azkaban.output.dataset"}


def jobs_of(folder: Path) -> Dict[str, Dict[str, str]]:
    return {path.stem: load(path.read_bytes()) for path in folder.glob("*.job")}


def test_flow_2_matches_the_job_files() -> None:
    flow = yaml.safe_load((FLOWS / "retraining-flow2" / "publish.flow").read_text())
    project = yaml.safe_load((FLOWS / "retraining-flow2" / "retraining.project").read_text())
    assert project == {"azkaban-flow-version": 2.0}

    def text(value: object) -> str:
        return str(value)

    shared = load((FLOWS / "retraining" / "shared.properties").read_bytes())
    assert {key: text(value) for key, value in flow["config"].items()} == shared
    found = {}
    for node in flow["nodes"]:
        more = {"dependencies": ",".join(node["dependsOn"])} if "dependsOn" in node else {}
        config = {key: text(value) for key, value in node["config"].items()}
        found[node["name"]] = {"type": node["type"], **more, **config}
    assert found == jobs_of(FLOWS / "retraining")


@pytest.mark.parametrize("name", ["first", "retraining"])
def test_jobs_name_what_is_there(name: str) -> None:
    jobs = jobs_of(FLOWS / name)
    archive = upload.pack([FLOWS / name, PROGRAMS] if name == "retraining" else [FLOWS / name])
    with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
        files = set(zipped.namelist())
    for job, keys in jobs.items():
        for dependency in filter(None, keys.get("dependencies", "").split(",")):
            assert dependency in jobs, job
        for key in set(keys) - WORDS:
            assert key.startswith("tony."), f"{job}: {key}"
        if keys["type"] == "tony":
            program = keys["executes"].split()[1]
            assert f"{keys['src_dir']}/{program}" in files
        else:
            program = keys["command"].split()[1]
            assert program in files or keys["command"].startswith("echo"), keys["command"]
    assert len(files) > len(jobs) and not any("__pycache__" in file for file in files)


def test_of_the_same_name_the_last_counts(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "same").write_text(name)
        (tmp_path / name / name).write_text("")
    archive = upload.pack([tmp_path / "one", tmp_path / "two"])
    with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
        assert sorted(zipped.namelist()) == ["one", "sub/same", "two"]
        assert zipped.read("sub/same") == b"two"
    assert archive == upload.pack([tmp_path / "one", tmp_path / "two"])


def test_a_failed_upload_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZKABAN_PASSWORD", "hush")
    assert upload.main([str(tmp_path / "none")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    assert upload.main([str(tmp_path), "--server", "http://127.0.0.1:1"]) == 1
    printed = capsys.readouterr().err
    assert "http://127.0.0.1:1 does not answer" in printed and "hush" not in printed
    assert upload.main([str(tmp_path), "--server", "somewhere"]) == 1
    assert "is not a server's address" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        upload.main([str(tmp_path), "--set", "nonsense"])
