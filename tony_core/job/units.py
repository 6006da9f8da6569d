"""Text to typed values: each unit is parsed here, once.

A parser raises ValueError with a message that finishes the sentence "the value ...".
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import List, Optional, Tuple

_MEMORY = {
    "": Decimal(1),
    "k": Decimal(1) / 1024,
    "m": Decimal(1),
    "g": Decimal(1024),
    "t": Decimal(1024 * 1024),
    "p": Decimal(1024 * 1024 * 1024),
}
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "sec": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
MOST_DIGITS = 18  # longer numbers are a mistake, and slow to turn into text again


def _check_digits(number: str, text: str) -> None:
    if len(number) > MOST_DIGITS:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise ValueError(f"{shown!r} has too many digits: at most {MOST_DIGITS}")


def parse_memory_mb(text: str) -> int:
    """``2g``, ``2048m``, ``1.5g``, ``1t``, or plain megabytes; rounded up to whole MB."""
    wanted = f"{text!r} is not a memory size: write 2g, 2048m, 1.5g, 1t or plain MB"
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if match is None:
        raise ValueError(wanted)
    _check_digits(match[1], text)
    unit = match[2].lower()
    for ending in ("ib", "b"):  # 2gb, 2GiB
        if len(unit) > len(ending) and unit.endswith(ending):
            unit = unit[: -len(ending)]
            break
    if unit not in _MEMORY:
        raise ValueError(wanted)
    size = (Decimal(match[1]) * _MEMORY[unit]).to_integral_value(rounding=ROUND_CEILING)
    if size <= 0:
        raise ValueError(f"{text!r} is not more than 0; write 2g, 2048m, 1.5g, 1t or plain MB")
    return int(size)


def parse_duration_s(text: str, unit: str) -> Optional[float]:
    """Seconds; a bare number is in ``unit``. ``off``, 0 and -1 are None."""
    word = text.strip().lower()
    if word in ("off", "none", "never", "-1"):
        return None
    match = _NUMBER_AND_UNIT.fullmatch(word)
    suffix = (match[2] or unit) if match else ""
    if match is None or suffix not in _SECONDS:
        plain = "milliseconds" if unit == "ms" else "seconds"
        raise ValueError(
            f"{text!r} is not a duration: write plain {plain}, or 500ms, 30s, 10m, 2h, 1d;"
            " off means no limit"
        )
    _check_digits(match[1], text)
    return float(Decimal(match[1]) * _SECONDS[suffix]) or None


def parse_int(text: str, at_least: Optional[int] = None) -> int:
    word = text.strip()
    if _INTEGER.fullmatch(word) is None:
        raise ValueError(f"{text!r} is not a whole number")
    _check_digits(word, text)
    number = int(word)
    if at_least is not None and number < at_least:
        raise ValueError(f"{text!r} is too small; expected {at_least} or more")
    return number


def parse_limit(text: str, memory: bool = False) -> Optional[int]:
    """A cap; any negative number is no cap."""
    word = text.strip()
    if word.startswith("-") and _INTEGER.fullmatch(word):
        return None
    return parse_memory_mb(word) if memory else parse_int(word, at_least=0)


def parse_bool(text: str) -> bool:
    """``true`` or ``false``, in any case."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


def parse_acl(text: str) -> str:
    """Users, a blank, groups: of groups alone the blank before them stays. The indentation of a
    value on a line of its own is none."""
    names = text.strip()
    before = text[: len(text) - len(text.lstrip())]
    are_groups = before and not before.strip(" ") and " " not in names
    return f" {names}" if are_groups else names


def parse_list(text: str) -> Tuple[str, ...]:
    """A comma list; blanks around the items and empty items are dropped."""
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def parse_env_pair(text: str) -> Tuple[str, str]:
    """``NAME=value``; a bare ``NAME`` is an empty value, as JVM TonY reads it."""
    name, _, value = text.partition("=")
    name = name.strip()
    if ENV_NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a name for an environment variable")
    return name, value


def parse_env_list(text: str) -> Tuple[Tuple[str, str], ...]:
    """``A=1,B=2``; a comma inside a value is written ``\\,``."""
    pairs: List[Tuple[str, str]] = []
    for part in re.split(r"(?<!\\),", text):
        if not part.strip():
            continue
        try:
            pairs.append(parse_env_pair(part.strip().replace("\\,", ",")))
        except ValueError as error:
            raise ValueError(f"{error} (a comma inside a value is written \\,)") from None
    return tuple(pairs)


def parse_port_range(text: str) -> Tuple[int, int]:
    """``20000-29999``."""
    match = re.fullmatch(r"\s*([0-9]{1,5})\s*-\s*([0-9]{1,5})\s*", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a port range: write 20000-29999")
    low, high = int(match[1]), int(match[2])
    if not 1 <= low <= high <= 65535:
        raise ValueError(f"{text!r} is not a range within 1-65535")
    return low, high


def format_memory(mb: int) -> str:
    """A memory size as its shortest text."""
    for unit, size in (("t", 1024 * 1024), ("g", 1024)):
        if mb % size == 0:
            return f"{mb // size}{unit}"
    return f"{mb}m"
