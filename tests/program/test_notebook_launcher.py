"""Jupyter's options: the token has the name that the server at hand knows."""

from __future__ import annotations

from importlib import metadata
from typing import List

import pytest

import tony_notebook


@pytest.mark.parametrize(
    ("version", "token", "unknown"),
    [
        ("1.24.0", "--ServerApp.token=t0ken", "identity"),
        ("2.21.1", "--IdentityProvider.token=t0ken", "ServerApp.token"),
        ("10.0", "--IdentityProvider.token=t0ken", "ServerApp.token"),
    ],
)
def test_the_tokens_name(
    monkeypatch: pytest.MonkeyPatch, version: str, token: str, unknown: str
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    options: List[str] = tony_notebook.options("/folder", 60.0, "t0ken")
    assert token in options
    assert not any(unknown in option for option in options)
