"""Java's serialised objects are read as data: nothing else happens, whatever they hold."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.fuzzing import bounds, fuzz, mutations
from tests.hadoop.logs.logfiles import recorded
from tony_core.hadoop.logs.datainput import FormatError
from tony_core.hadoop.logs.java_objects import JavaObject, read_object

HEAD = b"\xac\xed\x00\x05"


def java_class(name: bytes, flags: int, fields: bytes, count: int) -> bytes:
    """Without a parent."""
    text = len(name).to_bytes(2, "big") + name
    return (
        b"\x72" + text + bytes(8) + bytes([flags]) + count.to_bytes(2, "big") + fields + b"\x78\x70"
    )


def index() -> bytes:
    data = recorded("ifile-3.4.2")
    length = int.from_bytes(data[-36:-32], "big")
    return data[-36 - length : -36]


def test_a_real_index() -> None:
    found = read_object(index())
    assert isinstance(found, JavaObject)
    assert found.name.endswith("$IndexedLogsMeta")
    assert found.fields["version"] == 1
    assert found.fields["compressName"] == "none"
    (upload,) = found.fields["logMetas"]
    ((container, logs),) = upload.fields["logMetas"].items()
    assert container == "container_1795268525753_0004_02_000001"
    assert {log.fields["fileName"]: log.fields["fileSize"] for log in logs}["stdout"] == 292


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x70", None),
        (b"\x74\x00\x02hi", "hi"),
        (b"\x74\x00\x06\xed\xa0\xbd\xed\xb8\x80", "\U0001f600"),
        (b"\x74\x00\x02\xc0\x80", "\0"),
        (b"\x7c" + bytes(7) + b"\x01x", "x"),
        (b"\x75" + java_class(b"[I", 2, b"", 0) + b"\0\0\0\2\0\0\0\1\xff\xff\xff\xff", [1, -1]),
        (b"\x7e" + java_class(b"E", 18, b"", 0) + b"\x74\x00\x01A", "A"),
    ],
)
def test_single_values(data: bytes, value: object) -> None:
    assert read_object(HEAD + data) == value


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "0 bytes|should stand"),
        (HEAD + b"\x71\x00\x7e\x00\x07", "refers to object 7 of 0"),
        (HEAD + b"\x7d", "kind 0x7d"),
        (HEAD + b"\x73" + java_class(b"X", 12, b"", 0), "written in a way of their own"),
        (HEAD + b"\x75" + java_class(b"[B", 2, b"", 0) + b"\x7f\xff\xff\xff", "ends at"),
        (HEAD + b"\x73" + java_class(b"X", 2, b"L\0\1a\x74\0\1X", 1) * 100, "kind|refers"),
        (HEAD + (b"\x75" + java_class(b"[L", 2, b"", 0) + b"\0\0\0\1") * 100, "deep"),
    ],
)
def test_what_is_refused(data: bytes, error: str) -> None:
    with pytest.raises(FormatError, match=error):
        read_object(data)


def test_what_refers_to_itself_is_read() -> None:
    value = b"\x75" + java_class(b"[L", 2, b"", 0) + b"\0\0\0\1\x71\x00\x7e\x00\x01"
    found = read_object(HEAD + value)
    assert found[0] is found


@fuzz(data=st.one_of(st.binary(max_size=200), mutations(b"\x73" * 199)))
def test_anything_ends(data: bytes) -> None:
    try:
        read_object(HEAD + data)
    except FormatError:
        pass


@fuzz(data=mutations(index()))
def test_damage_ends(data: bytes) -> None:
    try:
        read_object(data)
    except FormatError:
        pass


def test_an_error_shows_no_contents() -> None:
    """Lists that hold each other twice would take 2 ** 40 words to print."""
    doubled = b"\x75" + java_class(b"[L", 2, b"", 0) + b"\0\0\0\2"
    again = b"\x75\x71\x00\x7e\x00\x02\0\0\0\2"
    # The innermost pair is empty; then each list's second item refers to its first.
    nested = doubled + again * 40 + b"\x70\x70"
    for number in range(39, -1, -1):
        nested += b"\x71" + (0x7E0000 + 4 + number).to_bytes(4, "big")
    whole = java_class(b"java.util.HashMap", 3, b"", 0)
    data = HEAD + b"\x73" + whole + nested + b"\x70\x78"
    with bounds(seconds=5.0), pytest.raises(FormatError, match="no texts: list"):
        read_object(data)


def test_a_long_line_of_classes() -> None:
    data = b"\x73"
    for number in range(200):
        data += java_class(f"C{number}".encode(), 2, b"", 0)[:-1]
    with pytest.raises(FormatError, match=r"deep|above"):
        read_object(HEAD + data + b"\x70")
