"""Jupyter's options: the token has the name that the server at hand knows. Its kernels' folder."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from importlib import metadata
from pathlib import Path
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


@pytest.mark.parametrize("version", ["1.24.0", "2.21.1"])
def test_no_section_of_a_default_class_is_left_to_a_users_file(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    options = tony_notebook.options("/folder", 60.0, "t0ken")
    for manager in ("KernelManager", "AsyncKernelManager", "IOLoopKernelManager",
                    "AsyncIOLoopKernelManager", "ServerKernelManager"):  # fmt: skip
        assert f"--{manager}.transport=ipc" in options
    for mapping in ("MappingKernelManager", "AsyncMappingKernelManager"):
        assert f"--{mapping}.cull_idle_timeout=60" in options
    is_old = version.startswith("1.")
    app = "ServerApp" if is_old else "PasswordIdentityProvider"
    assert f"--{app}.token=t0ken" in options
    assert f"--{app}.password_required=False" in options
    assert f"--{app}.{'password' if is_old else 'hashed_password'}=" in options


@pytest.mark.parametrize("length", [40, 300])
def test_a_folder_that_has_room_for_sockets_and_is_closed(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        place = short + "/" + "x" * (length - len(short) - 1) if length < 200 else short
        while len(place) < length:
            place += "/" + "x" * 99
        os.makedirs(place)
        monkeypatch.setattr(tempfile, "tempdir", place)
        before = os.umask(0)
        try:
            made = tony_notebook.make_runtime_folder()
        finally:
            os.umask(before)
        try:
            assert (os.path.dirname(made) == place) == (length < 50)
            assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(os.path.join(made, tony_notebook.KERNEL_SOCKET))
        finally:
            shutil.rmtree(made)


def test_a_node_without_a_place_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(prefix: str, dir: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 90)))
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(OSError, match="too long; /tmp: Permission denied") as raised:
        tony_notebook.make_runtime_folder()
    assert "TMPDIR must\nname a folder that can be written" in str(raised.value)
