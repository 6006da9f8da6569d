"""What goes through the pipes of the verb ``yarn-fetch-tokens``, as JSON.

==================  ==========================================================================
request             meaning
==================  ==========================================================================
``site``            properties of the cluster, the principals of its services among them
``principal``       whom to log in as
``keytab``          its keytab, in base64
``user``            the owner of the job: the principal has to be this user's
``held``            the answer to the fetch before (a file of credentials, in base64), if there was
                    one
``file_systems``    locations; each is on a file system for which the job needs a token
``limit_s``         after so many seconds it gives up, with a reason
``check``           only find the library, ``krb5.conf`` and a login; the answer is then empty
==================  ==========================================================================

==================  ==========================================================================
answer              meaning
==================  ==========================================================================
``credentials``     a file of credentials with the tokens, in base64
``ends``            when the first of them expires, in seconds since the epoch
``renewed``         whether they are those of ``held``, all of them, which expire later now
==================  ==========================================================================

Otherwise one sentence is on stderr, and the exit code says whether another try can help. The master
builds requests, and so must not import what only the verb needs: Kerberos' library.
"""

from __future__ import annotations

import base64
import json
from typing import Dict, NamedTuple, Tuple

from tony_core.hadoop.credentials import Credentials

FAILED, USAGE, UNREACHABLE = 1, 2, 3
"""Exit codes: no other try can help, not a request, a server could not be reached, or refused."""


class Request(NamedTuple):
    """What to fetch, and as whom."""

    site: Dict[str, str]
    principal: str
    keytab: bytes
    user: str
    file_systems: Tuple[str, ...] = ()
    check: bool = False
    held: bytes = b""
    limit_s: float = 60.0

    def __repr__(self) -> str:  # without keys and tokens
        return f"Request(principal={self.principal!r}, user={self.user!r}, check={self.check!r})"

    def encode(self) -> str:
        """The text for the process's stdin."""
        packed = {name: _to_text(getattr(self, name)) for name in ("keytab", "held")}
        return json.dumps({**self._asdict(), **packed})

    @classmethod
    def decode(cls, text: str) -> Request:
        """Undo :meth:`encode`; raises :class:`ValueError`."""
        values = json.loads(text)
        if not isinstance(values, dict) or not set(values) <= set(cls._fields):
            raise ValueError(f"expected an object with {', '.join(cls._fields)}")
        try:
            for name in ("keytab", "held"):
                values[name] = _to_bytes(values.get(name, ""))
            return cls(**{**values, "file_systems": tuple(values.get("file_systems", ()))})
        except TypeError as error:
            raise ValueError(str(error)) from None


class Fetched(NamedTuple):
    """Fresh tokens by their services."""

    credentials: Credentials
    ends: float
    """When the first of them expires, in seconds since the epoch."""
    renewed: bool = False

    def encode(self) -> str:
        """The line on the process's stdout."""
        return json.dumps({**self._asdict(), "credentials": _to_text(self.credentials.encode())})

    @classmethod
    def decode(cls, text: str) -> Fetched:
        """Undo :meth:`encode`; raises :class:`ValueError`."""
        try:
            values = json.loads(text)
            found = Credentials.decode(_to_bytes(values["credentials"]))
            return cls(found, float(values["ends"]), values["renewed"] is True)
        except (KeyError, TypeError) as error:
            raise ValueError(f"the answer lacks {error}") from None


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _to_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
