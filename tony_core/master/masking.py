"""Keeps secrets out of the page, history and diagnostics.

:mod:`tony_core.job.mask` decides what is a secret. This module knows the job's own, and
masks them wherever they occur (a program that prints its environment, a command line).
"""

from __future__ import annotations

import sys
import time
from typing import Any

from tony_core.job.mask import SHORTEST, KnownSecrets, job_secrets
from tony_core.job.spec import Job
from tony_core.protocol.job_secret import unpack_secret


class Masker:
    """Masks a job's own secrets in anything made of strings."""

    def __init__(self, job: Job, secret: bytes = b"") -> None:
        values = job_secrets(job)
        key = unpack_secret(secret)
        values.update((key.secret.hex(), key.secret.decode("latin-1")))
        values.update(line for line in key.pem.decode("ascii").splitlines() if len(line) > SHORTEST)
        self._known = KnownSecrets(values)

    def text(self, text: str) -> str:
        return self._known.mask(text)

    def log(self, text: str) -> None:
        """Write a line to the master's log, its stderr."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            sys.stderr.write(f"{stamp} {self.text(text)}\n")
            sys.stderr.flush()
        except OSError:
            pass  # the disk is full; the story shows that

    def clean(self, value: Any) -> Any:
        """Mask the secrets in nested values."""
        if isinstance(value, str):
            return self.text(value) if value else value
        if isinstance(value, dict):
            return {key: self.clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(item) for item in value]
        return value
