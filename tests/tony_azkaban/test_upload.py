"""The script that uploads a flow, as far as it needs no server."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dags.examples.azkaban import upload


def test_without_a_password_and_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.job").write_text("type=noop")
    monkeypatch.delenv("AZKABAN_PASSWORD", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert upload.main([str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("upload: no password: export AZKABAN_PASSWORD")
