"""Fresh tokens from the master, on their way to the container's token file. Pure.

The newest content wins. It comes over the master's own connection, and only the newest master is
obeyed, so the order of arrival is the order in which they were fetched. A write that fails is
tried again until it succeeds or newer content comes: without it the program's tokens end.

Python 3.8.
"""

from __future__ import annotations

import binascii
from typing import Callable, Optional

from tony_core.protocol.messages import Noted, Tokens
from tony_executor.commands import Command, WriteTokens

RETRY_S = 30.0
_MAGIC = b"HDTS"  # how every file of Hadoop credentials begins
_SUBJECT = "fresh-tokens"


class TokenRenewal:
    """``refusal`` is why this container takes no tokens; empty if it takes them."""

    def __init__(
        self, emit: Callable[[Command], None], note: Callable[[Noted], None], refusal: str
    ) -> None:
        self.retry_at: Optional[float] = None
        self._emit = emit
        self._note = note
        self._refusal = refusal
        self._content = b""

    def take(self, message: Tokens) -> None:
        """Write these tokens, unless this container must not take them."""
        if self._refusal:
            self._warn(f"fresh tokens were refused: {self._refusal}")
            return
        try:
            content = binascii.a2b_base64(message.content)
        except ValueError:
            content = b""
        if not content.startswith(_MAGIC):
            self._warn("fresh tokens were refused: what the master sent is no credentials file")
            return
        if content != self._content or self.retry_at is not None:
            self._content = content
            self.write()

    def write(self) -> None:
        """Write the newest tokens; :meth:`note_failure` follows where that fails."""
        self.retry_at = None
        self._emit(WriteTokens(self._content))

    def note_failure(self, reason: str, now: float) -> None:
        """Note that the file could not be replaced; it still holds the older tokens."""
        self.retry_at = now + RETRY_S
        self._warn(
            f"fresh tokens cannot be written ({reason}); the program has its older ones, which end"
            f" soon. Next try in {RETRY_S:g} s"
        )

    def _warn(self, text: str) -> None:
        self._note(Noted("warning", text, _SUBJECT))
