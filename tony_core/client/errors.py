"""What can go wrong on the client's side, by whose fault it is."""

from __future__ import annotations

from typing import Sequence


class ClientError(Exception):
    """Base; the message is for a person and says what to do."""


class UsageError(ClientError):
    """What was asked for makes no sense (exit code 2)."""


class NotFound(UsageError):
    """No application of that id, or several."""

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class PageError(ClientError):
    """The job's page does not answer (now); never a reason for anything to fail."""
