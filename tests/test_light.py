"""The light stand-ins do what the library's own do."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any, Dict, NamedTuple, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core import light


class Heavy(NamedTuple):
    first: int
    second: str = "two"
    third: Optional[Dict[str, int]] = None


class Light(light.Record):
    first: int
    second: str = "two"
    third: Optional[Dict[str, int]] = None

    @property
    def both(self) -> str:
        """Of its own."""
        return f"{self.first}{self.second}"


class Nothing(light.Record):
    """Without a field."""


def test_a_record_is_a_named_tuple() -> None:
    for kind in (Heavy, Light):
        made: Any = kind(1, third={"a": 1})
        assert made == (1, "two", {"a": 1}) and hash(kind(1)) == hash((1, "two", None))
        assert (made.first, made.second) == (1, "two")
        assert made._asdict() == {"first": 1, "second": "two", "third": {"a": 1}}
        assert made._replace(first=2).first == 2
        assert kind._fields == ("first", "second", "third")
        assert kind._field_defaults == {"second": "two", "third": None}
        assert repr(made) == f"{kind.__name__}(first=1, second='two', third={{'a': 1}})"
        assert kind._make([3, "x", None]) == kind(3, "x")
        assert pickle.loads(pickle.dumps(made)) == made
        with pytest.raises(AttributeError):
            made.first = 2
        with pytest.raises(AttributeError):
            made.other = 2
    assert Light(1).both == "1two"
    assert Nothing() == ()


@pytest.mark.parametrize("kind", [Heavy, Light])
def test_values_without_a_place_and_places_without_a_value(kind: Any) -> None:
    for values, named in [
        ((), {}),
        ((1, "b", None, 4), {}),
        ((1,), {"first": 1}),
        ((1,), {"fourth": 1}),
        ((1, "b", None), {"first": 1}),
    ]:
        with pytest.raises(TypeError):
            kind(*values, **named)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_json_as_the_library_writes_and_reads_it(value: Any) -> None:
    text = light.json_text(value)
    assert text == json.dumps(value, separators=(",", ":"))
    assert light.json_value(text) == value
    assert light.json_value(f"\n {json.dumps(value, indent=1)}\t\r\n") == value


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_numbers_that_json_has_no_word_for_are_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        light.json_text(value)
    with pytest.raises(ValueError, match="no number"):
        light.json_value(json.dumps(value))


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "1 2", '{"a":}', "nul", '"\n"'])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        light.json_value(text)


def test_what_json_cannot_hold_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="set"):
        light.json_text({"a": {1}})


def test_sockets_accept_and_close() -> None:
    with light.socket.socket(light.socket.AF_INET, light.socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with light.socket.socket(light.socket.AF_INET, light.socket.SOCK_STREAM) as caller:
            caller.connect(listener.getsockname())
            called, address = listener.accept()
            with called:
                assert address == caller.getsockname()
                caller.sendall(b"word")
                assert called.recv(10) == b"word"
        assert caller.fileno() == -1
