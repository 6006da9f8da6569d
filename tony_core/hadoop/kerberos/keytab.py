"""The entries of a keytab: whose keys it holds, and those of one principal alone. Pure.

A keytab (version 5.2) is two bytes ``05 02``, then entries, each after its length as a signed
number of four bytes; a negative length is a hole. An entry begins with the number of components,
the realm and the components, each text after its length of two bytes.
"""

from __future__ import annotations

import struct
from typing import Iterator, List, Tuple

_VERSION = b"\x05\x02"


class NoKeytab(ValueError):
    """The bytes are not a keytab."""


def read_principals(data: bytes) -> List[str]:
    """The principals that a keytab holds keys of, each once; raises :class:`NoKeytab`."""
    return list(dict.fromkeys(principal for principal, _ in _read_entries(data)))


def holds_keys(data: bytes) -> bool:
    """Whether it is a keytab with at least one entry; what follows that may be damaged."""
    try:
        return next(_read_entries(data), None) is not None
    except NoKeytab:
        return False


def select_keys(data: bytes, principal: str) -> bytes:
    """A keytab with the keys of one principal; empty if there are none. Raises NoKeytab."""
    chosen = [entry for owner, entry in _read_entries(data) if owner == principal]
    packed = [struct.pack(">i", len(entry)) + entry for entry in chosen]
    return _VERSION + b"".join(packed) if packed else b""


def _read_entries(data: bytes) -> Iterator[Tuple[str, bytes]]:
    """Each entry with its principal."""
    if data[:2] != _VERSION:
        raise NoKeytab("it is not a keytab")
    at = 2
    try:
        while at + 4 <= len(data):
            (size,) = struct.unpack_from(">i", data, at)
            at += 4
            if size > 0:
                entry = data[at : at + size]
                yield _read_principal(entry), entry
            elif not size:
                break
            at += abs(size)
    except (struct.error, UnicodeDecodeError):
        raise NoKeytab("it is a damaged keytab") from None


def _read_principal(entry: bytes) -> str:
    (count,) = struct.unpack_from(">H", entry)
    realm, at = _read_text(entry, 2)
    parts = []
    for _ in range(count):
        part, at = _read_text(entry, at)
        parts.append(part)
    return f"{'/'.join(parts)}@{realm}"


def _read_text(data: bytes, at: int) -> Tuple[str, int]:
    (size,) = struct.unpack_from(">H", data, at)
    end = at + 2 + size
    if end > len(data):
        raise struct.error
    return data[at + 2 : end].decode(), end
