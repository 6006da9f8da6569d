"""Searches text for key material: passwords of tokens, a job's secret, the keys of keytabs.

A key is found as it is and as programs write bytes: hexadecimal, base64 (also of URLs) at each of
the three offsets that it can have in a longer text, and the escapes of Python. What is compressed
is not looked into.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import struct
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from tony_core.hadoop.credentials import Credentials, CredentialsError
from tony_core.protocol.job_secret import unpack_secret
from tony_core.schedulers.yarn.job_credentials import KEYTAB
from tony_core.schedulers.yarn.node.start import SECRET

SHORTEST = 8
"""Bytes of a key. A shorter text turns up by chance."""

LARGEST = 64 << 20
"""Bytes of a file that is searched."""


class Occurrence(NamedTuple):
    """A key in a text: which one, and how it is written there."""

    key: str
    form: str


def forms_of(key: bytes) -> Dict[str, bytes]:
    """A key as programs write it, by the name of the form."""
    found = {
        "raw": key,
        "hex": key.hex().encode(),
        "HEX": key.hex().upper().encode(),
        "escaped": repr(key)[2:-1].encode(),
    }
    for offset in range(3):
        bits = 8 * (offset + len(key))
        first, end = (0, 2, 3)[offset], bits // 6  # characters that hold bits of the key only
        before = b"\0" * offset + key
        found[f"base64 at {offset}"] = base64.b64encode(before)[first:end]
        found[f"base64 of URLs at {offset}"] = base64.urlsafe_b64encode(before)[first:end]
    return found


class KeySearch:
    """Looks for several keys in many texts."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        short = [name for name, key in keys.items() if len(key) < SHORTEST]
        if short:
            raise ValueError(f"keys of less than {SHORTEST} bytes: {', '.join(short)}")
        self._patterns: List[Tuple[Occurrence, bytes]] = []
        for name, key in keys.items():
            once = {text: form for form, text in reversed(list(forms_of(key).items()))}
            self._patterns += [(Occurrence(name, form), text) for text, form in once.items()]

    def find(self, text: bytes) -> List[Occurrence]:
        """The keys in a text, each once for every form in which it is there."""
        return [occurrence for occurrence, pattern in self._patterns if pattern in text]


class FileWithKeys(NamedTuple):
    """A file, its permissions, and the keys in it."""

    path: Path
    mode: int
    found: Tuple[Occurrence, ...]

    def __repr__(self) -> str:
        return f"{self.path} ({oct(self.mode)}): {', '.join(map(str, self.found))}"


def files_with_keys(search: KeySearch, folders: Iterable[Path]) -> Iterator[FileWithKeys]:
    """The files below the folders that have a key; links are not followed."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent, name)
                with contextlib.suppress(OSError):  # one that was removed meanwhile
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                        found = search.find(path.read_bytes())
                        if found:
                            yield FileWithKeys(path, stat.S_IMODE(status.st_mode), tuple(found))


def keys_of_credentials(data: bytes) -> Dict[str, bytes]:
    """The keys in a credentials file: the tokens' passwords, the job's secret and TLS key.

    Empty for other bytes.
    """
    try:
        credentials = Credentials.decode(data)
    except CredentialsError:
        return {}
    # By identifier: two containers of a node have tokens of one kind for one service.
    found = {
        f"password of {token.kind} for {token.service or 'any'} {token.identifier[-8:].hex()}": (
            token.password
        )
        for token in credentials.tokens.values()
    }
    if SECRET in credentials.secrets:
        key = unpack_secret(credentials.secrets[SECRET])
        found[f"the job's secret or a container's key {key.secret[:2].hex()}"] = key.secret
        if key.pem:
            found["the job's TLS key"] = key.pem
    if KEYTAB in credentials.secrets:
        found["the shipped keytab, as it is packed"] = credentials.secrets[KEYTAB]
    return {name: key for name, key in found.items() if len(key) >= SHORTEST}


def keys_of_keytab(data: bytes) -> Dict[str, bytes]:
    """The keys in a keytab of MIT Kerberos, by principal and type."""
    if data[:2] != b"\x05\x02":
        raise ValueError("not a keytab of version 2")
    found: Dict[str, bytes] = {}
    at = 2
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size > 0:  # else a hole of that size
            principal, number, key = _keytab_entry(data[at : at + size])
            found[f"key {number} of {principal}"] = key
        at += abs(size)
    return found


def _keytab_entry(entry: bytes) -> Tuple[str, int, bytes]:
    (parts,) = struct.unpack_from(">H", entry)
    at = 2

    def texts() -> Iterator[bytes]:
        nonlocal at
        for _ in range(parts + 1):  # the realm first
            (size,) = struct.unpack_from(">H", entry, at)
            yield entry[at + 2 : at + 2 + size]
            at += 2 + size

    realm, *names = texts()
    at += 4 + 4 + 1  # the name's type, the time, the version
    number, size = struct.unpack_from(">HH", entry, at)
    principal = b"/".join(names) + b"@" + realm
    return principal.decode(), number, entry[at + 4 : at + 4 + size]
