from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Tuple

import pytest

from tests.job.loading import SAMPLES, write_xml
from tony_core.cli import config
from tony_core.job.keys.reference import reference
from tony_core.job.keys.table import table

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_page_is_current() -> None:
    page = (CHECKOUT / "docs" / "keys.md").read_text()
    assert page == reference(), "python -m tony_core.job.keys.reference > docs/keys.md"


def test_every_key_is_on_it() -> None:
    page = reference()
    for key in table().keys:
        assert f"| `{key.name}` |" in page


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Tuple[int, str]:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    code = config.run(parser.parse_args(list(words)))
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    settings = {"tony.worker.instances": "2", "tony.execution.envs": "A=hush"}
    return str(write_xml(tmp_path / "a.xml", settings))


def test_show(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out = run(capsys, "show", "--conf_file", file, "--conf", "tony.yarn.queue=q")
    assert code == 0
    lines = out.splitlines()
    assert f"tony.worker.instances = 2  ({file}:3)" in lines
    assert f"tony.execution.envs = A=********  ({file}:6)" in lines
    assert "tony.yarn.queue = q  (--conf)" in lines
    assert "tony.application.type = TONY  (default)" in lines
    code, out = run(capsys, "show", "--conf-file", file, "--set", "--json")
    assert [row["key"] for row in json.loads(out)["settings"]] == [
        "tony.execution.envs",
        "tony.worker.instances",
    ]


def test_show_refuses(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out = run(capsys, "show", "--conf_file", file, "--conf", "tony.x=1")
    assert (code, out) == (2, "--conf: tony.x: unknown key\n")


def test_keys(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "keys")
    assert code == 0
    assert "tony.<role>.memory [2g]\n    memory (MB): Memory of one task." in out
    code, out = run(capsys, "keys", "--json", "heartbeat-interval")
    rows = {row["name"]: row["status"] for row in json.loads(out)["keys"]}
    assert rows == {
        "tony.task.heartbeat-interval-ms": "live",
        "tony.task.heartbeat-interval": "renamed",
    }


def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str) -> None:
    code, out = run(capsys, "check", file)
    assert code == 0
    assert out.startswith(f"warning: {file}: no command for worker")
    bad = str(write_xml(tmp_path / "b.xml", {"tony.worker.instances": "x", "tony.y": "z"}))
    code, out = run(capsys, "check", bad)
    assert code == 2
    assert f"{bad}:3: tony.worker.instances: 'x' is not a whole number\n" in out
    assert f"{bad}:6: tony.y: unknown key\n" in out
    code, out = run(capsys, "check", "--json", bad)
    assert (code, json.loads(out)["ok"]) == (2, False)
    assert json.loads(out)["problems"][0]["line"] == 3
    code, out = run(capsys, "check", str(SAMPLES / "mnist.xml"))
    assert code == 2
    assert "mnist.xml:30: tony.containers.resources" in out
    assert "lookup.txt does not exist" in out


def test_check_without_problems(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str
) -> None:
    good = str(write_xml(tmp_path / "c.xml", {"tony.containers.command": "true"}))
    assert run(capsys, "check", good) == (0, f"{good}: no problems\n")
    code, out = run(capsys, "check", str(tmp_path / "gone.xml"))
    assert (code, "cannot be read" in out) == (2, True)


def test_check_names_what_differs_from_the_jvms(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = {"tony.worker.instances": "2", "tony.containers.command": "true"}
    file = str(write_xml(tmp_path / "d.xml", {**settings, "tony.ps.memory": "3g"}))
    code, out = run(capsys, "check", file)
    assert (code, len(out.splitlines())) == (0, 1)
    code, out = run(capsys, "check", "--from-jvm", file)
    first, second = out.splitlines()
    assert code == 0
    assert "defaults that differ: tony.am.retry-count (0 there, 2 here)" in first
    assert second.startswith(f"warning: {file}:9: tony.ps.memory: tony.ps.instances is not set")
