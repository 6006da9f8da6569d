"""Who has logged in: sessions by a random number, kept in memory.

A cookie carries the number only. There is nothing in it to change, no key to find, and a logout
or a restart ends it. The number of a login is always a new one, so no number that a browser was
given before is ever worth something after it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from typing import Callable, NamedTuple, Optional

from starlette.requests import Request

from tony_core.portal.settings import Settings
from tony_core.portal.viewer import Viewer

MOST_SESSIONS = 20_000
MOST_OF_ONE = 50  # of one user: who logs in by a script must not push out the others


class _Session(NamedTuple):
    viewer: Viewer
    ends: float


class Sessions:
    """The sessions of one portal; for one thread."""

    def __init__(self, lifetime_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.lifetime_s = lifetime_s
        self._now = now
        self._known: OrderedDict[bytes, _Session] = OrderedDict()

    def __len__(self) -> int:
        self._forget_ended()
        return len(self._known)

    def begin(self, viewer: Viewer) -> str:
        """A new session; its number for the cookie."""
        self._forget_ended()
        own = [key for key, known in self._known.items() if known.viewer.name == viewer.name]
        for key in own[: max(0, len(own) - MOST_OF_ONE + 1)]:
            del self._known[key]
        while len(self._known) >= MOST_SESSIONS:
            self._known.popitem(last=False)
        number = secrets.token_urlsafe(32)
        self._known[_digest(number)] = _Session(viewer, self._now() + self.lifetime_s)
        return number

    def find(self, number: Optional[str]) -> Optional[Viewer]:
        """Whose session it is, if it has not ended."""
        found = self._known.get(_digest(number)) if number else None
        return found.viewer if found is not None and self._now() < found.ends else None

    def end(self, number: Optional[str]) -> None:
        """End a session, if it is one."""
        if number:
            self._known.pop(_digest(number), None)

    def _forget_ended(self) -> None:
        # All live equally long, so the oldest is the first to end.
        while self._known and next(iter(self._known.values())).ends <= self._now():
            self._known.popitem(last=False)


def _digest(number: str) -> bytes:
    # By its digest: how long a comparison takes says nothing of the numbers that there are.
    return hashlib.sha256(number.encode("utf-8", "surrogateescape")).digest()


class CsrfTokens:
    """The tokens that forms carry: no other site's page can read one.

    A token belongs to one login (a session, a name), and holds until the portal is restarted.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, login: str) -> str:
        """The token of a login."""
        return hmac.new(self._key, login.encode("utf-8", "surrogateescape"), "sha256").hexdigest()

    def is_valid(self, token: Optional[str], login: str) -> bool:
        """Whether a request carries it."""
        given = (token or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self.token(login).encode())


class SessionCookie(NamedTuple):
    """The cookie that carries a session's number."""

    name: str
    lifetime_s: int
    is_secure: bool

    @classmethod
    def of(cls, settings: Settings) -> SessionCookie:
        """The cookie of a portal; with TLS its name makes browsers refuse another host's."""
        name = "__Host-tony-portal" if settings.uses_https else "tony-portal"
        return cls(name, int(settings.login.session_s), settings.uses_https)

    def number(self, request: Request) -> Optional[str]:
        """The number that a request carries."""
        return request.cookies.get(self.name)

    def header(self, number: str) -> str:
        """The header that gives a browser its session."""
        return f"{self.name}={number}; Max-Age={self.lifetime_s}; {self._flags}"

    def removal(self) -> str:
        """The header that takes it away."""
        return f"{self.name}=; Max-Age=0; {self._flags}"

    @property
    def _flags(self) -> str:
        return "Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if self.is_secure else "")
