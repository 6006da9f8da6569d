"""Keytabs and ticket caches as files: made here, cut off, and damaged."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import List, Sequence

import pytest

from tests.fuzzing import fuzz, mutations
from tony_core.hadoop.kerberos.keytab import NoKeytab, read_principals, select_keys
from tony_core.hadoop.kerberos.ticket_cache import (
    RENEWABLE,
    NoCache,
    Ticket,
    TicketCache,
    parse_cache,
    read_cache,
)

TGT = ("krbtgt", "EXAMPLE")


def short(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def entry(realm: str, *parts: str) -> bytes:
    name = struct.pack(">H", len(parts)) + short(realm) + b"".join(map(short, parts))
    body = name + struct.pack(">IIBHH", 1, 0, 2, 18, 4) + b"key!"
    return struct.pack(">i", len(body)) + body


HOLE = struct.pack(">i", -6) + b"unused"
KEYTAB = b"\x05\x02" + entry("EXAMPLE", "ann") + HOLE + entry("EXAMPLE", "rm", "host") * 2


def test_the_principals_of_a_keytab() -> None:
    assert read_principals(KEYTAB) == ["ann@EXAMPLE", "rm/host@EXAMPLE"]
    assert read_principals(b"\x05\x02") == []


def test_the_keys_of_one_principal() -> None:
    assert select_keys(KEYTAB, "ann@EXAMPLE") == b"\x05\x02" + entry("EXAMPLE", "ann")
    assert select_keys(KEYTAB, "rm/host@EXAMPLE").count(b"host") == 2
    for other in ("ann", "ann@ELSEWHERE", "rm@EXAMPLE", ""):
        assert select_keys(KEYTAB, other) == b""
    with pytest.raises(NoKeytab, match="damaged"):
        select_keys(KEYTAB[:9], "ann@EXAMPLE")


@pytest.mark.parametrize("data", [b"", b"\x05", b"password", b"\x05\x01" + KEYTAB[2:]])
def test_no_keytab(data: bytes) -> None:
    with pytest.raises(NoKeytab, match="not a keytab"):
        read_principals(data)


@fuzz(data=mutations(KEYTAB))
def test_any_bytes_of_a_keytab(data: bytes) -> None:
    try:
        read_principals(data)
    except NoKeytab:
        pass


def block(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def principal(realm: str, *parts: str) -> bytes:
    texts = b"".join(block(part.encode()) for part in (realm, *parts))
    return struct.pack(">II", 1, len(parts)) + texts


def credential(server: bytes, end: int, renewable: int = 0, flags: int = 0) -> bytes:
    return b"".join(
        (
            principal("EXAMPLE", "ann"),
            server,
            struct.pack(">H", 18) + block(b"key"),
            struct.pack(">IIII", 1000, 1000, end, renewable),
            b"\0" + struct.pack(">I", flags),
            struct.pack(">I", 1) + struct.pack(">H", 2) + block(b"\x7f\0\0\1"),
            struct.pack(">I", 0),
            block(b"the ticket") + block(b""),
        )
    )


def cache(version: int, credentials: Sequence[bytes]) -> bytes:
    head = b"\0\x0c\0\1\0\x08" + b"\0" * 8 if version == 4 else b""
    start = bytes((5, version)) + head + principal("EXAMPLE", "ann")
    return start + b"".join(credentials)


CREDENTIALS: List[bytes] = [
    credential(principal("EXAMPLE", *TGT), 5000, 9000, RENEWABLE),
    credential(principal("X-CACHECONF:", "krb5_ccache_conf_data", "pa_type"), 0),
    credential(principal("EXAMPLE", "rm", "host"), 4000, 9000),
]


@pytest.mark.parametrize("version", [3, 4])
def test_the_tickets_of_a_cache(version: int) -> None:
    found = parse_cache(cache(version, CREDENTIALS))
    assert found == TicketCache(
        "ann@EXAMPLE",
        (
            Ticket("krbtgt/EXAMPLE@EXAMPLE", 1000, 5000, 9000),
            Ticket("rm/host@EXAMPLE", 1000, 4000, 0),
        ),
    )
    assert found.initial == found.tickets[0]
    assert parse_cache(cache(version, ())).initial is None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("{}/cache", "cache"),
        ("FILE:{}/cache", "cache"),
        ("DIR:{}", "tkt"),
        ("DIR::{}/tktother", "tktother"),
    ],
)
def test_where_a_cache_is(tmp_path: Path, name: str, path: str) -> None:
    (tmp_path / path).write_bytes(cache(4, CREDENTIALS))
    found = read_cache(name.format(tmp_path))
    assert found is not None and found.principal == "ann@EXAMPLE"


def test_the_one_that_a_folder_names(tmp_path: Path) -> None:
    (tmp_path / "primary").write_text("tktb\n")
    (tmp_path / "tktb").write_bytes(cache(4, CREDENTIALS))
    assert read_cache(f"DIR:{tmp_path}") is not None


@pytest.mark.parametrize("name", ["KCM:", "KEYRING:session:x", "MEMORY:x"])
def test_what_only_the_library_can_read(name: str) -> None:
    assert read_cache(name) is None


@pytest.mark.parametrize("data", [b"", b"password", b"\x05\x01abc", cache(4, CREDENTIALS)[:-3]])
def test_no_cache(data: bytes) -> None:
    with pytest.raises(NoCache):
        parse_cache(data)


@fuzz(data=mutations(cache(3, CREDENTIALS), cache(4, CREDENTIALS)))
def test_any_bytes_of_a_cache(data: bytes) -> None:
    try:
        parse_cache(data)
    except NoCache:
        pass
