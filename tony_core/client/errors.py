"""The client's own errors, by whose fault they are."""

from __future__ import annotations

from typing import Sequence


class ClientError(Exception):
    """Base class; the message says what to do."""


class UsageError(ClientError):
    """The command or the call is wrong (exit code 2)."""


class NotFound(UsageError):
    """No application has that id, or several match it."""

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class PageError(ClientError):
    """The job's page does not answer (now); no reason to fail."""


class PageRefused(PageError):
    """The job's page, or the proxy before it, does not admit this reader."""


class PageGone(PageError):
    """What was asked for was there, and is no more; the message has the reason."""


class TunnelError(ClientError):
    """No way into the job's containers (any more)."""


class NoClientKey(TunnelError):
    """The job's master has left no key for its owner (yet)."""
