"""The codec: against itself, against the real protobuf runtime, against anything at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Sequence, Type

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as TheirDecodeError
from google.protobuf.message import Message as TheirMessage
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.fuzzing import bounds, fuzz, mutations
from tests.hadoop.schema import MESSAGES, any_message, instances
from tony_core.hadoop.rpc import protobuf
from tony_core.hadoop.rpc.messages import RpcRequestHeader, RpcResponseHeader, Token
from tony_core.hadoop.rpc.protobuf import (
    BYTES,
    EMPTY,
    FLOAT,
    INT32,
    SCALARS,
    STRING,
    DecodeError,
    EncodeError,
    Message,
    many,
    one,
    read_delimited,
    read_varint,
    varint,
)
from tony_core.hadoop.yarn.messages.yarn import (
    ContainerRetryContext,
    ContainerStatus,
    NodeId,
    Resource,
)

_TYPES = {
    "int32": 5,
    "int64": 3,
    "uint32": 13,
    "uint64": 4,
    "sint32": 17,
    "enum": 5,  # a number is a number on the wire
    "bool": 8,
    "float": 2,
    "string": 9,
    "bytes": 12,
}


class Inner(Message):
    number: int = one(1, INT32, default=0)
    text: str = one(2, STRING, default="")


class Outer(Message):
    inner: Inner = one(1, Inner, default=EMPTY)
    numbers: Sequence[int] = many(2, INT32, default=())
    shares: Sequence[float] = many(3, FLOAT, default=())
    data: bytes = one(4, BYTES, default=b"", required=True)


class Whole(Message):
    outer: Outer = one(1, Outer, default=EMPTY)


def runtime_classes() -> Dict[str, Type[TheirMessage]]:
    """The same definitions in the real runtime."""
    file = descriptor_pb2.FileDescriptorProto(name="ours.proto", package="ours", syntax="proto2")
    known: Dict[str, Type[Message]] = {**MESSAGES, "Inner": Inner, "Outer": Outer}
    for name, kind in known.items():
        message = file.message_type.add(name=name)
        for field in kind.FIELDS:
            label = 3 if field.repeated else 2 if field.required else 1
            made = message.field.add(name=field.name, number=field.number, label=label)
            if field.kind in SCALARS:
                made.type = _TYPES[str(field.kind)]  # type: ignore[assignment]
            else:
                made.type = 11
                made.type_name = f".ours.{field.message().__name__}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ours.{name}"))
        for name in known
    }


THEIRS = runtime_classes()


def filled(message: Message) -> TheirMessage:
    """The same content in the real runtime's message."""
    theirs = THEIRS[type(message).__name__]()
    _fill(message, theirs)
    return theirs


def _fill(message: Message, theirs: Any) -> None:
    theirs.SetInParent()
    for field in message.FIELDS:
        if not message.has(field.name) and not field.required:
            continue
        value = getattr(message, field.name)
        if field.kind in SCALARS:
            if field.repeated:
                getattr(theirs, field.name).extend(value)
            else:
                setattr(theirs, field.name, value)
        elif field.repeated:
            for single in value:
                _fill(single, getattr(theirs, field.name).add())
        else:
            _fill(value, getattr(theirs, field.name))


class TestAgainstTheRealRuntime:
    @settings(max_examples=300)
    @given(any_message())
    def test_we_write_the_same_bytes(self, message: Message) -> None:
        assert message.encode() == filled(message).SerializeToString(deterministic=True)

    @settings(max_examples=200)
    @given(any_message())
    def test_we_read_what_it_writes(self, message: Message) -> None:
        read = type(message).decode(filled(message).SerializeToString())
        assert read.encode() == message.encode()

    @settings(max_examples=500)
    @given(st.sampled_from(sorted(MESSAGES)), st.binary(max_size=60))
    def test_we_agree_on_any_bytes(self, name: str, data: bytes) -> None:
        """What it accepts we accept; both understand the same."""
        theirs = THEIRS[name]()
        try:
            theirs.MergeFromString(data)
        except (TheirDecodeError, UnicodeDecodeError):
            return
        theirs.DiscardUnknownFields()  # type: ignore[attr-defined]
        try:
            ours = MESSAGES[name].decode(data)
        except DecodeError as error:
            # It lets this pass, which the format and Java forbid.
            assert "a field with the number 0" in str(error)
            return
        # Text that is no text we make readable; of the numbers that are none there are many.
        assume("\ufffd".encode() not in ours.encode() and "nan" not in repr(ours))
        assert ours.encode() == MESSAGES[name].decode(theirs.SerializePartialToString()).encode()

    def test_packed_numbers_are_read(self) -> None:
        packed = b"\x12\x05" + varint(1) + varint(2) + varint(300) + b"\x09"
        assert Outer.decode(packed).numbers == (1, 2, 300, 9)
        theirs = THEIRS["Outer"]()
        theirs.MergeFromString(packed + b"\x22\x00")
        assert list(theirs.numbers) == [1, 2, 300, 9]  # type: ignore[attr-defined]

    def test_two_parts_of_a_message_are_merged(self) -> None:
        halves = b"\x0a\x02\x08\x07" + b"\x0a\x03\x12\x01x" + b"\x22\x00"
        assert Outer.decode(halves).inner == Inner(number=7, text="x")
        theirs = THEIRS["Outer"]()
        theirs.MergeFromString(halves)
        assert filled(Outer.decode(halves)) == theirs


class TestRoundTrips:
    @settings(max_examples=300)
    @given(any_message())
    def test_what_was_written_is_read(self, message: Message) -> None:
        read = type(message).decode(message.encode())
        assert read.encode() == message.encode()
        for field in message.FIELDS:
            if message.has(field.name):
                assert getattr(read, field.name) == getattr(message, field.name)

    @given(st.integers(0, (1 << 64) - 1), st.binary(max_size=3))
    def test_numbers(self, number: int, rest: bytes) -> None:
        data = varint(number)
        assert read_varint(data + rest, 0) == (number, len(data))

    @given(instances(NodeId), instances(Resource), st.binary(max_size=5))
    def test_delimited(self, first: Message, second: Message, rest: bytes) -> None:
        data = first.delimited() + second.delimited() + rest
        body, at = read_delimited(data, 0)
        assert type(first).decode(body).encode() == first.encode()
        body, at = read_delimited(data, at)
        assert type(second).decode(body).encode() == second.encode()
        assert data[at:] == rest


_WORTH = {
    name: [
        b"".join(
            field.tag + (b"\x07abc\x08\x01\x12\0" if field.tag[0] & 7 == 2 else b"\x05\0\0\0")
            for field in kind.FIELDS
        )
    ]
    for name, kind in MESSAGES.items()
}


class TestAnything:
    @fuzz(name=st.sampled_from(sorted(MESSAGES)), data=st.data())
    def test_any_damage_is_a_message_or_an_error(self, name: str, data: st.DataObject) -> None:
        raw = data.draw(mutations(*_WORTH[name]))
        try:
            MESSAGES[name].decode(raw)
        except DecodeError:
            pass

    @fuzz(name=st.sampled_from(sorted(MESSAGES)), data=st.binary(max_size=200))
    def test_any_bytes_are_a_message_or_an_error(self, name: str, data: bytes) -> None:
        try:
            MESSAGES[name].decode(data)
        except DecodeError as error:
            assert str(error).startswith(f"{name} of {len(data)} bytes: ")

    @settings(max_examples=300)
    @given(any_message(), st.data())
    def test_a_damaged_message_is_a_message_or_an_error(
        self, message: Message, data: st.DataObject
    ) -> None:
        raw = bytearray(message.encode())
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
        try:
            type(message).decode(cut)
        except DecodeError:
            pass

    @pytest.mark.parametrize(
        "part",
        [
            b"\x0a\x02\x10\x01",  # a list within the part
            b"\x0a\x06\x1a\x04\0\0\0\0",
            b"\x0a\x02\x1a\x00",
        ],
        ids=["numbers", "packed", "empty"],
    )
    def test_many_parts_of_a_message_take_time_for_each(self, part: bytes) -> None:
        with bounds(seconds=10.0, megabytes=64.0):
            Whole.decode(part * 100_000)

    def test_many_packed_numbers_take_time_for_each(self) -> None:
        packed = b"\0\0\x80\x3f" * 100_000
        with bounds(seconds=10.0, megabytes=32.0):
            found = Outer.decode(b"\x1a" + varint(len(packed)) + packed).shares
        assert found == (1.0,) * 100_000

    def test_values_beyond_count_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(protobuf, "MOST_VALUES", 1000)
        with pytest.raises(DecodeError, match="more than 1000 values"):
            Outer.decode(b"\x10\x01" * 1001)
        with pytest.raises(DecodeError, match="more than 1000 values"):
            Outer.decode(b"\x12" + varint(1001) + b"\x01" * 1001)
        assert len(Outer.decode(b"\x10\x01" * 1000).numbers) == 1000

    def test_nesting_has_an_end(self) -> None:
        data = b""
        for _ in range(1000):
            data = b"\x22" + varint(len(data)) + data
        with pytest.raises(DecodeError, match="too deep"):
            MESSAGES["SerializedException"].decode(data)
        with pytest.raises(DecodeError):
            NodeId.decode(b"\x7b" * 1000)

    def test_a_size_beyond_the_end(self) -> None:
        with pytest.raises(DecodeError, match="host of 100 bytes where 1 are left"):
            NodeId.decode(b"\x0a\x64x")
        with pytest.raises(DecodeError):
            read_delimited(b"\x7f", 0)
        with pytest.raises(DecodeError):
            read_delimited(b"", 0)


class TestMessages:
    def test_a_negative_number_takes_ten_bytes(self) -> None:
        status = ContainerStatus(exit_status=-105)
        assert status.encode() == b"\x20\x97\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        assert ContainerStatus.decode(status.encode()).exit_status == -105

    def test_a_number_with_its_sign_apart_is_short(self) -> None:
        assert RpcRequestHeader(call_id=-33).encode() == b"\x18\x41\x22\x00"

    def test_what_is_required_is_written_unasked(self) -> None:
        assert Token(kind="k").encode() == b"\x0a\x00\x12\x00\x1a\x01k\x22\x00"

    def test_what_was_set_is_distinguished_from_its_default(self) -> None:
        assert not NodeId().has("port")
        assert NodeId(port=0).has("port")
        assert NodeId(port=0).encode() == b"\x10\x00"
        assert NodeId(port=0) != NodeId()
        assert ContainerStatus().exit_status == -1000

    def test_unknown_fields_are_skipped(self) -> None:
        unknown = b"".join(
            (
                b"\xf8\x07\x05",  # a number
                b"\xf9\x07" + b"\0" * 8,
                b"\xfa\x07\x03abc",
                b"\xfb\x07\x08\x01\xfb\x08\xfc\x08\xfc\x07",  # a group with one in it
                b"\xfd\x07" + b"\0" * 4,
            )
        )
        node = NodeId(host="a", port=1)
        assert NodeId.decode(unknown + node.encode() + unknown) == node

    def test_they_are_immutable_values(self) -> None:
        node = NodeId(host="a")
        with pytest.raises(AttributeError, match="replace"):
            node.host = "b"  # type: ignore[misc]
        assert node.replace(host="b") == NodeId(host="b")
        assert node.replace(host=None) == NodeId()
        assert len({node, NodeId(host="a"), NodeId(host="b")}) == 2
        assert ContainerRetryContext(error_codes=[1, 2]).error_codes == (1, 2)

    def test_what_does_not_fit_is_refused_by_name(self) -> None:
        with pytest.raises(TypeError, match="NodeId has no field 'hots'"):
            NodeId(hots="a")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="no field 'encode'"):
            NodeId(encode="a")  # type: ignore[call-arg]
        with pytest.raises(EncodeError, match=r"NodeId\.port cannot be 2147483648"):
            NodeId(port=1 << 31).encode()
        with pytest.raises(EncodeError, match=r"RpcResponseHeader\.call_id cannot be -1"):
            RpcResponseHeader(call_id=-1).encode()
        with pytest.raises(EncodeError, match=r"NodeId\.host cannot be 7"):
            NodeId(host=7).encode()  # type: ignore[arg-type]
        with pytest.raises(EncodeError, match="no Inner"):
            Outer(inner=NodeId()).encode()  # type: ignore[arg-type]

    def test_bytes_are_never_shown(self) -> None:
        shown = repr(Token(identifier=b"who", password=b"secret", kind="k"))
        assert shown == "Token(identifier=<3 bytes>, password=<6 bytes>, kind='k')"


def test_what_the_master_loads_is_small() -> None:
    """Nothing of the protobuf runtime, of OpenSSL, or of XML on the way to the wire."""
    program = (
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "before = set(sys.modules)\n"
        "import tony_core.hadoop.yarn.rm_master, tony_core.hadoop.yarn.node_manager\n"
        "loaded = set(sys.modules) - before\n"
        "heavy = ('google', 'ssl', '_ssl', 'hashlib', '_hashlib', 'xml', 'pyexpat', 'http')\n"
        "print(sorted(n for n in loaded if n.partition('.')[0] in heavy))\n"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            program,
            str(root),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
