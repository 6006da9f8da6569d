"""What a real cluster (3.4.2) said, byte by byte, with the client's random parts fixed."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Sequence, Tuple, Union

from tests.hadoop.schema import MESSAGES
from tony_core.hadoop.rpc.messages import Token
from tony_core.hadoop.rpc.sasl import STRENGTH
from tony_core.hadoop.rpc.wire import Event, User, Wire

FOLDER = Path(__file__).with_name("recordings")
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))

_CLIENT_ID = bytes(range(16))
_NONCE = b"bm9uY2Ugb2YgYSByZWNvcmRpbmc="


@dataclass(frozen=True)
class Recording:
    """One conversation."""

    name: str
    protocol: str
    identity: Union[User, Token]
    calls: Tuple[Tuple[str, str, bytes], ...]  # method, message, its bytes
    log: Tuple[Tuple[str, bytes], ...]  # "sent", "came" or "closed"
    events: Tuple[Tuple[Any, ...], ...]

    @property
    def came(self) -> bytes:
        return b"".join(data for what, data in self.log if what == "came")

    @property
    def sent(self) -> bytes:
        return b"".join(data for what, data in self.log if what == "sent")

    def wire(self, allowed: Sequence[str] = STRENGTH) -> Wire:
        """The client's side, with the same random parts."""
        return Wire(self.protocol, _CLIENT_ID, self.identity, allowed=allowed, nonce=lambda: _NONCE)

    def send(self, wire: Wire, index: int) -> None:
        """Make the call again that was made then."""
        method, message, data = self.calls[index]
        wire.call(index, method, MESSAGES[message].decode(data))


@functools.cache
def load(name: str) -> Recording:
    """One of NAMES."""
    raw = json.loads((FOLDER / f"{name}.json").read_text())
    who = raw["identity"]
    identity: Union[User, Token] = (
        User(who["user"])
        if "user" in who
        else Token(
            identifier=bytes.fromhex(who["identifier"]),
            password=bytes.fromhex(who["password"]),
            kind=who["kind"],
            service=who["service"],
        )
    )
    return Recording(
        name,
        raw["protocol"],
        identity,
        tuple((method, message, bytes.fromhex(data)) for method, message, data in raw["calls"]),
        tuple((what, bytes.fromhex(data)) for what, data in raw["log"]),
        tuple(tuple(event) for event in raw["events"]),
    )


def described(events: Sequence[Event]) -> List[Tuple[Any, ...]]:
    """Events as the recordings write them."""
    found: List[Tuple[Any, ...]] = []
    for event in events:
        values = list(event._asdict().values())
        if type(event).__name__ == "CallResult":
            values[1] = values[1].hex()
        if type(event).__name__ == "CallFailed":
            values[2] = values[2].partition("\n\tat ")[0]
        found.append((type(event).__name__, *values))
    return found
