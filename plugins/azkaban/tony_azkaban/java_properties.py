"""Reads and writes Java's properties files as ``java.util.Properties`` does.

Azkaban writes a job's properties into one (``JOB_PROP_FILE``), and an administrator configures the
job type by them. The bytes are latin-1, and ``\\uXXXX`` stands for other characters, in UTF-16
units. A backslash before the end of a line joins the next line to it, without its leading blanks.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Tuple

_BLANKS = " \t\f"
_END = re.compile(r"\r\n|\r|\n")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_HEX = re.compile(r"[0-9A-Fa-f]{4}", re.ASCII)


class PropertiesError(ValueError):
    """The text is not a properties file; ``line`` is where."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Property(NamedTuple):
    """One logical line: its key and value, and the part of the text that has them."""

    key: str
    value: str
    start: int
    end: int  # behind its line end
    line: int  # from 1


def load(data: bytes) -> Dict[str, str]:
    """The properties; of two lines for one key the last counts."""
    return {each.key: each.value for each in parse(data.decode("latin-1"))}


def parse(text: str) -> List[Property]:
    """Every line with a property, in the text's order; PropertiesError."""
    found = []
    for line in _logical(text):
        key, value = _split(line.text)
        try:
            found.append(
                Property(_unescaped(key), _unescaped(value), line.start, line.end, line.number)
            )
        except ValueError as error:
            raise PropertiesError(str(error), line.number) from None
    return found


def dump(properties: Mapping[str, str]) -> bytes:
    """The text of a file that holds these."""
    return "".join(f"{line(key, value)}\n" for key, value in properties.items()).encode("ascii")


def line(key: str, value: str) -> str:
    """One line, without its end."""
    blank = "\\" if value.startswith(" ") else ""
    return f"{_escaped(key).replace(' ', chr(92) + ' ')}={blank}{_escaped(value)}"


# ------------------------------------------------------------------ reading


class _Line(NamedTuple):
    text: str  # joined, still escaped
    start: int
    end: int
    number: int


def _logical(text: str) -> Iterator[_Line]:
    """Joined lines, without blank ones and comments."""
    at, number = 0, 1
    while at < len(text):
        start, first = at, number
        parts: List[str] = []
        joined = nameless = begun = False
        while at <= len(text):
            stop, after = _line_end(text, at)
            natural = text[at:stop].lstrip(_BLANKS)
            at, number = after, number + 1
            if not begun and (not natural or natural[0] in "#!"):
                break  # also after a line that has only a backslash
            slashes = len(natural) - len(natural.rstrip("\\"))
            joined = slashes % 2 == 1
            # Java reads a single backslash at the end of the file as a property without a name.
            nameless = joined and stop >= len(text) - 1
            parts.append(natural[:-1] if joined else natural)
            begun = begun or bool(parts[-1])
            if not joined or stop == len(text):
                break
        whole = "".join(parts)
        if whole or nameless:
            yield _Line(whole, start, at, first)


def _line_end(text: str, at: int) -> Tuple[int, int]:
    """Where the line that begins at a place stops, and where the next one begins."""
    found = _END.search(text, at)
    return found.span() if found is not None else (len(text), len(text))


def _split(text: str) -> Tuple[str, str]:
    end = 0
    while end < len(text) and text[end] not in "=:" + _BLANKS:
        end += 2 if text[end] == "\\" else 1
    end = min(end, len(text))
    rest = text[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return text[:end], rest


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out: List[str] = []
    at = 0
    while at < len(text):
        mark = text[at]
        at += 1
        if mark != "\\" or at == len(text):
            out.append("" if mark == "\\" else mark)
            continue
        letter = text[at]
        at += 1
        if letter == "u":
            code = text[at : at + 4]
            if _HEX.fullmatch(code) is None:
                raise ValueError(f"\\u{code}: expected four hexadecimal digits after \\u")
            out.append(chr(int(code, 16)))
            at += 4
        else:
            out.append(_LETTERS.get(letter, letter))
    # Java's characters are UTF-16 units: two of them may be one of ours.
    joined = "".join(out)
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


# ------------------------------------------------------------------ writing


def _escaped(text: str) -> str:
    out: List[str] = []
    for mark in text:
        if mark in _ESCAPED:
            out.append(_ESCAPED[mark])
        elif mark in "\\=:#!":
            out.append("\\" + mark)
        elif " " <= mark <= "~":
            out.append(mark)
        else:
            units = mark.encode("utf-16-be", "surrogatepass")
            pairs = [units[at : at + 2] for at in range(0, len(units), 2)]
            out.extend(f"\\u{int.from_bytes(pair, 'big'):04X}" for pair in pairs)
    return "".join(out)
