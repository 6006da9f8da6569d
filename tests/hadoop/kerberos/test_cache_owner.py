"""A ticket cache that another user has put where ours would be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tony_core.hadoop.errors import LoginError
from tony_core.hadoop.kerberos import gssapi, login
from tony_core.hadoop.kerberos.gssapi import Target
from tony_core.hadoop.kerberos.login import Login

OTHER = 54321
TARGET = Target(principal="rm/h@R")

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default cache, in place of that in /tmp; the library takes any."""

    class Taken:
        def __init__(self, *words: Any) -> None:
            pass

        def inquire(self) -> Any:
            return "eve@R", 3600

    path = tmp_path / "krb5cc"
    monkeypatch.delenv("KRB5CCNAME", raising=False)
    monkeypatch.setattr(gssapi, "default_ticket_cache", lambda: f"FILE:{path}")
    monkeypatch.setattr(login, "Credential", Taken)
    monkeypatch.setattr(login, "SecurityContext", lambda *words: None)
    return path


def refused(found: Login) -> None:
    for call in (found.check, lambda: found.new_context(TARGET)):
        with pytest.raises(LoginError, match=rf"krb5cc is another user's \(uid {OTHER}\)"):
            call()


@needs_root
def test_it_is_not_used(cache: Path) -> None:
    cache.write_bytes(b"")
    os.chown(cache, OTHER, OTHER)
    refused(Login.from_ticket_cache(env={}))


@needs_root
def test_nor_behind_a_link(cache: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"")
    cache.symlink_to(theirs)
    os.chown(theirs, OTHER, OTHER)
    refused(Login.from_ticket_cache(env={}))


@needs_root
def test_nor_by_another_users_link(cache: Path, tmp_path: Path) -> None:
    """They could change at any time where it leads."""
    ours = tmp_path / "ours"
    ours.write_bytes(b"")
    cache.symlink_to(ours)
    os.chown(cache, OTHER, OTHER, follow_symlinks=False)
    refused(Login.from_ticket_cache(env={}))


@needs_root
@pytest.mark.parametrize("theirs", ["", "tkt", "primary", "tkt2"])
def test_nor_in_a_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """``DIR:``, where ``primary`` names the current cache."""
    folder = tmp_path / "krb5cc"
    folder.mkdir()
    if theirs in ("primary", "tkt2"):
        (folder / "primary").write_text("tkt2\n")
    for name in ("tkt", "tkt2"):
        (folder / name).write_bytes(b"")
    monkeypatch.setattr(gssapi, "default_ticket_cache", lambda: f"DIR:{folder}")
    assert Login.from_ticket_cache(env={}).principal == "eve@R"
    os.chown(folder / theirs, OTHER, OTHER)
    with pytest.raises(LoginError, match=rf"krb5cc.* is another user's \(uid {OTHER}\)"):
        Login.from_ticket_cache(env={}).check()


@needs_root
def test_nor_in_a_folder_by_the_name_of_the_file(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "krb5cc").mkdir()
    (tmp_path / "krb5cc" / "tkt").write_bytes(b"")
    monkeypatch.setattr(gssapi, "default_ticket_cache", lambda: f"DIR::{cache}/tkt")
    assert Login.from_ticket_cache(env={}).principal == "eve@R"
    os.chown(tmp_path / "krb5cc", OTHER, OTHER)
    refused(Login.from_ticket_cache(env={}))


@needs_root
def test_nor_when_it_comes_later(cache: Path) -> None:
    cache.write_bytes(b"")
    found = Login.from_ticket_cache(env={})
    found.check()
    os.chown(cache, OTHER, OTHER)
    refused(found)


@needs_root
def test_one_that_the_user_names_is(cache: Path) -> None:
    cache.write_bytes(b"")
    os.chown(cache, OTHER, OTHER)
    for found in (
        Login.from_ticket_cache(str(cache)),
        Login.from_ticket_cache(env={"KRB5CCNAME": str(cache)}),
    ):
        assert found.principal == "eve@R"


def test_ones_own_is(cache: Path) -> None:
    cache.write_bytes(b"")
    assert Login.from_ticket_cache(env={}).principal == "eve@R"
