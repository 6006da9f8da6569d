"""Messages as bytes: every one comes back as it was, and nothing else is let in."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_core.protocol import messages
from tony_core.protocol.codec import ProtocolError, decode, encode
from tony_core.protocol.messages import Heartbeat, Measured, Noted, Start, Welcome

TYPES: List[Any] = [
    *messages.TO_MASTER,
    *messages.TO_EXECUTOR,
]

_INT = st.integers(-(2**63), 2**63 - 1)
_FLOAT = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5)
# What an environment really holds: bytes that are no UTF-8 arrive as lone surrogates.
_TEXT = st.text(max_size=20) | st.just("\udcff\x00")
_ANY = st.recursive(
    st.none() | st.booleans() | _FLOAT | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
STRATEGIES: Dict[Any, Any] = {
    int: _INT,
    float: _FLOAT,
    str: _TEXT,
    bool: st.booleans(),
    List[str]: st.lists(_TEXT, max_size=3),
    List[int]: st.lists(_INT, max_size=3),
    Dict[str, int]: st.dictionaries(_TEXT, _INT, max_size=3),
    Dict[str, str]: st.dictionaries(_TEXT, _TEXT, max_size=3),
    Dict[str, float]: st.dictionaries(_TEXT, _FLOAT, max_size=3),
    Dict[str, Any]: st.dictionaries(_TEXT, _ANY, max_size=3),
    Optional[Dict[str, Any]]: st.none() | st.dictionaries(_TEXT, _ANY, max_size=3),
    Optional[bool]: st.none() | st.booleans(),
    Optional[float]: st.none() | _FLOAT,
    Optional[int]: st.none() | _INT,
    Optional[List[int]]: st.none() | st.lists(_INT, max_size=3),
}

any_message = st.one_of(
    [
        st.builds(kind, **{f: STRATEGIES[kind.__annotations__[f]] for f in kind._fields})
        for kind in TYPES
    ]
)


@given(any_message)
def test_every_message_comes_back(message: Any) -> None:
    back = decode(encode(message))
    assert back == message
    assert type(back) is type(message)


def test_defaults_are_not_sent() -> None:
    assert encode(Heartbeat()) == b'["Heartbeat",{}]'
    assert encode(Heartbeat(3)) == b'["Heartbeat",{"session":3}]'


def test_a_field_that_is_json_already_is_put_in() -> None:
    raw = json.dumps({"CLUSTER_SPEC": '{"worker":[]}'}).encode()
    start = decode(encode(Start(1, "true", {"A": "b"}), raw={"shared": raw}))
    assert start == Start(1, "true", {"A": "b"}, {"CLUSTER_SPEC": '{"worker":[]}'})


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\xff\xfe", "no JSON"),
        (b"", "no JSON"),
        (b"{}", '["Name"'),
        (b'["Heartbeat"]', '["Name"'),
        (b'[["Heartbeat"],{}]', '["Name"'),
        (b'["Nonsense",{}]', "unknown message 'Nonsense'"),
        (b'["Heartbeat",[]]', "the fields of Heartbeat"),
        (b'["Heartbeat",{"sesion":1}]', "no field 'sesion'"),
        (b'["Heartbeat",{"session":"1"}]', "Heartbeat.session is no int"),
        (b'["Heartbeat",{"session":true}]', "Heartbeat.session is no int"),
        (b'["Heartbeat",{"session":1.5}]', "Heartbeat.session is no int"),
        (b'["Running",{"session":1}]', "Running lacks pid"),
        (b'["Measured",{"session":1,"values":{"a":NaN}}]', "NaN is no number"),
        (b'["Measured",{"session":1,"values":{"a":-Infinity}}]', "Infinity is no number"),
        (b'["Measured",{"session":1,"values":{"a":"x"}}]', "Measured.values is no Dict"),
        (b'["Noted",{"level":"info","text":' + b"[" * 100_000, "nested too deeply"),
        (b'["Heartbeat",{"session":' + b"9" * 100_000 + b"}]", ""),
        (b'["__class__",{}]', "unknown message"),
    ],
)
def test_what_is_no_message_is_refused_by_name(payload: bytes, words: str) -> None:
    if not words:  # huge numbers: newer Pythons refuse them, older ones read them
        try:
            decode(payload)
        except ProtocolError:
            pass
        return
    with pytest.raises(ProtocolError) as caught:
        decode(payload)
    assert words in str(caught.value)
    assert caught.value.fault == "remote"


@fuzz(
    payload=mutations(
        encode(Heartbeat(3)), encode(Measured(1, {"loss": 0.5})), encode(Noted("info", "a")),
        encode(Start(1, "true", {"A": "b"})), b'["Measured",' + b"[" * 5000,
    )
)  # fmt: skip
def test_garbage_never_raises_anything_else(payload: bytes) -> None:
    try:
        decode(payload)
    except ProtocolError:
        pass


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_json_cannot_hold_is_our_fault(value: Any) -> None:
    with pytest.raises(ProtocolError, match=r"Measured\.values cannot be sent") as caught:
        encode(Measured(1, {"loss": value}))
    assert caught.value.fault == "local"


def test_what_is_no_message_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="dict is no message"):
        encode({"a": 1})  # type: ignore[arg-type]


def test_integers_are_numbers_too() -> None:
    assert decode(encode(Welcome(1, 1, 25, 30, 5, True, 20, 300))) == Welcome(
        1, 1.0, 25.0, 30.0, 5.0, True, 20, 300.0
    )


def test_long_texts_in_any_script() -> None:
    noted = Noted("info", "Ünïcödé 訓練 " * 1000)
    assert decode(encode(noted)) == noted
