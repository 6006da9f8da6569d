from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz
from tony_core.job import units


@pytest.mark.parametrize(
    ("text", "mb"),
    [
        ("2g", 2048),
        ("2048m", 2048),
        ("1.5g", 1536),
        ("1t", 1048576),
        ("4096", 4096),
        ("2G", 2048),
        (" 2 g ", 2048),
        ("2gb", 2048),
        ("2GiB", 2048),
        ("1k", 1),
        ("0.1m", 1),
        ("1025k", 2),
    ],
)
def test_memory(text: str, mb: int) -> None:
    assert units.parse_memory_mb(text) == mb


@pytest.mark.parametrize(
    "text",
    ["", "g", "2x", "-2g", "0", "0g", "2g2", "1e9", "٢g", "2,5g", "nan", "b", "ib"],
)
def test_memory_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"memory size|not more than 0"):
        units.parse_memory_mb(text)


@given(st.integers(1, 10**12))
def test_memory_round_trip(mb: int) -> None:
    assert units.parse_memory_mb(units.format_memory(mb)) == mb


@pytest.mark.parametrize(
    ("text", "unit", "seconds"),
    [
        ("1500", "ms", 1.5),
        ("30", "s", 30.0),
        ("30s", "ms", 30.0),
        ("10m", "ms", 600.0),
        ("2h", "s", 7200.0),
        ("1d", "s", 86400.0),
        ("500ms", "s", 0.5),
        ("1.5h", "s", 5400.0),
        ("off", "s", None),
        ("0", "ms", None),
        ("-1", "ms", None),
        ("10 MIN", "s", 600.0),
    ],
)
def test_duration(text: str, unit: str, seconds: float) -> None:
    assert units.parse_duration_s(text, unit) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "-1h", "-5", "-0.5", "1h30m", "1e3"])
def test_duration_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        units.parse_duration_s(text, "s")


@given(st.integers(1, 10**9))
def test_duration_in_milliseconds(milliseconds: int) -> None:
    assert units.parse_duration_s(f"{milliseconds}ms", "s") == pytest.approx(milliseconds / 1000)


def test_env_list() -> None:
    assert units.parse_env_list("A=1, B=x=y ,C,, D=1\\,2") == (
        ("A", "1"), ("B", "x=y"), ("C", ""), ("D", "1,2"),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"a comma inside a value"):
        units.parse_env_list("A=1,2")


def test_port_range() -> None:
    assert units.parse_port_range("20000-29999") == (20000, 29999)
    for text in ("20000", "2-1", "0-5", "1-65536", "a-b", "1-2-3"):
        with pytest.raises(ValueError, match="range"):
            units.parse_port_range(text)


def test_limits_bools_and_numbers() -> None:
    assert units.parse_limit("-1") is None
    assert units.parse_limit("0") == 0
    assert units.parse_limit("8g", memory=True) == 8192
    assert units.parse_bool("TRUE") is True
    with pytest.raises(ValueError, match="neither true nor false"):
        units.parse_bool("yes")
    for text in ("1.5", "0x10", "", "1_000"):
        with pytest.raises(ValueError, match="whole number"):
            units.parse_int(text)


def test_too_many_digits() -> None:
    for parse in (
        lambda: units.parse_int("9" * 20),
        lambda: units.parse_memory_mb("1" * 50 + "g"),
        lambda: units.parse_duration_s("9" * 40, "s"),
    ):
        with pytest.raises(ValueError, match=r"too many digits: at most 18$"):
            parse()


@fuzz(text=st.text())
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for parse in (
        units.parse_memory_mb, units.parse_int, units.parse_bool, units.parse_port_range,
        units.parse_env_list, units.parse_limit, lambda t: units.parse_duration_s(t, "s"),
    ):  # fmt: skip
        try:
            parse(text)  # type: ignore[operator]
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("text", "acl"),
    [
        ("ann,bob staff", "ann,bob staff"),
        (" staff,ops", " staff,ops"),
        ("  staff ", " staff"),
        (" ann staff", "ann staff"),
        ("*", "*"),
        ("\n      ann,bob staff\n    ", "ann,bob staff"),
        ("\tann", "ann"),
        ("ann\n", "ann"),
    ],
)
def test_a_list_of_only_groups_keeps_its_blank(text: str, acl: str) -> None:
    assert units.parse_acl(text) == acl
