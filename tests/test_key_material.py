"""The search for key material finds a key however a program wrote it, and nothing else."""

from __future__ import annotations

import base64
import os
import struct
from pathlib import Path
from typing import Callable

import pytest

from tests.key_material import (
    KeySearch,
    Occurrence,
    files_with_keys,
    keys_of_credentials,
    keys_of_keytab,
)
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.schedulers.yarn.node.start import SECRET

KEY = bytes(range(200, 220))


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("raw", bytes),
        ("hex", lambda text: text.hex().encode()),
        ("HEX", lambda text: text.hex().upper().encode()),
        ("escaped", lambda text: repr(text).encode()),
        ("base64", base64.b64encode),
        ("base64", base64.urlsafe_b64encode),
    ],
)
def test_a_key_within_other_bytes(form: str, write: Callable[[bytes], bytes], before: int) -> None:
    text = b"log: " + write(os.urandom(before) + KEY + os.urandom(5)) + b"\n"
    found = KeySearch({"it": KEY, "other": bytes(20)}).find(text)
    assert found and {one.key for one in found} == {"it"}
    assert all(one.form.startswith(form) for one in found)


def test_nothing_where_there_is_none() -> None:
    search = KeySearch({"it": KEY})
    assert search.find(os.urandom(1 << 16)) == []
    assert search.find(KEY[:-1] + b"\0") == []
    assert search.find(base64.b64encode(KEY[:-2])) == []


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="pin"):
        KeySearch({"pin": b"1234"})


def test_a_token_in_an_address() -> None:
    token = Token(b"who knows", KEY, HDFS_DELEGATION, "127.0.0.1:8020")
    address = f"http://nn/webhdfs/v1/?op=OPEN&delegation={url_string(token)}".encode()
    assert {one.key for one in KeySearch({"password": KEY}).find(address)} == {"password"}


def test_the_keys_of_credentials() -> None:
    token = Token(b"identifier", KEY, HDFS_DELEGATION, "127.0.0.1:8020")
    secret = bytes(range(32))
    credentials = Credentials({"a": token}, {SECRET: secret, "tony.job": b"no key"})
    for version in (0, 1):
        keys = keys_of_credentials(credentials.encode(version))
        assert sorted(keys.values()) == [secret, KEY]
        assert any(HDFS_DELEGATION in name for name in keys)
    assert keys_of_credentials(b"something else") == {}


def test_the_keys_of_a_keytab() -> None:
    def text(value: bytes) -> bytes:
        return struct.pack(">H", len(value)) + value

    entry = struct.pack(">H", 2) + text(b"HERE.EXAMPLE") + text(b"nn") + text(b"host")
    entry += struct.pack(">IIBH", 1, 0, 3, 18) + text(KEY) + struct.pack(">I", 3)
    hole = struct.pack(">i", -6) + bytes(6)
    data = b"\x05\x02" + hole + struct.pack(">i", len(entry)) + entry
    assert keys_of_keytab(data) == {"key 18 of nn/host@HERE.EXAMPLE": KEY}
    with pytest.raises(ValueError, match="not a keytab"):
        keys_of_keytab(b"text")


def test_an_occurrence_names_key_and_form() -> None:
    found = KeySearch({"it": KEY}).find(b"x" + KEY)
    assert found == [Occurrence("it", "raw")]


def test_the_files_with_a_key(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "stderr").write_bytes(b"password: " + KEY.hex().encode())
    (tmp_path / "logs" / "stderr").chmod(0o640)
    (tmp_path / "clean").write_bytes(KEY[1:])
    (tmp_path / "link").symlink_to(tmp_path / "logs" / "stderr")
    (found,) = files_with_keys(KeySearch({"it": KEY}), [tmp_path])
    assert (found.path.name, found.mode) == ("stderr", 0o640)
    assert found.found == (Occurrence("it", "hex"),)
    assert KEY.hex() not in repr(found) and "stderr (0o640)" in repr(found)
