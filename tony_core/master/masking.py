"""Nothing secret reaches the page, history or a diagnostic.

:mod:`tony_core.job.mask` decides what is a secret. The job's own are known here, so wherever one
turns up (a program that prints its environment, a command line with a token) it is covered.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from tony_core.job.mask import SHORTEST, KnownSecrets, job_secrets
from tony_core.job.spec import Job
from tony_core.protocol.job_key import unpack_key


class Masker:
    """Covers a job's own secrets in anything made of strings."""

    def __init__(self, job: Job, secret: bytes = b"") -> None:
        values = job_secrets(job)
        key = unpack_key(secret)
        values.update((key.secret.hex(), key.secret.decode("latin-1")))
        values.update(line for line in key.pem.decode("ascii").splitlines() if len(line) > SHORTEST)
        self._known = KnownSecrets(values)

    def text(self, text: str) -> str:
        """One text as people may see it."""
        return self._known.mask(text)

    def log(self, text: str) -> None:
        """A line for whoever looks for what went wrong: the master's own stderr."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            sys.stderr.write(f"{stamp} {self.text(text)}\n")
            sys.stderr.flush()
        except OSError:
            pass  # its disk is full: the story says so

    def clean(self, value: Any) -> Any:
        """The same for what is nested."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(item) for item in value]
        return value
