"""Makes the key pair of a job with TLS, by the ``openssl`` program.

Python's library cannot make a certificate. ``openssl`` is on nearly every machine, and needed on
this one only: the nodes get what it made. The private key goes through pipes and lies in no file
but the job's secret (and YARN's credentials).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from typing import List

PROGRAM = "openssl"
TIMEOUT_S = 60.0
CONFIG = b"[req]\ndistinguished_name=d\nprompt=no\n[d]\nCN=tony\n"  # not this machine's own
DAYS = "36500"  # its dates are never checked
KEY = "tony.task.tls"

_MISSING = (
    f"{KEY} needs the program {PROGRAM} on this machine, to make the job's certificate: install"
    f" it, or set {KEY}=false"
)


class NoKeyPair(Exception):
    """The key pair cannot be made; the message says what to do."""


def missing() -> str:
    """Why no key can be made here; empty if one can."""
    return "" if shutil.which(PROGRAM) else _MISSING


def with_tls(secret: bytes) -> bytes:
    """A job's secret file with a new key pair; raises :class:`NoKeyPair`."""
    key = _run(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], b"")
    import ssl  # these two are a tenth of a submit's imports, for those who ask for it

    from tony_core.protocol.job_secret import JobSecret, pack_secret

    arguments = ["req", "-x509", "-new", "-sha256", "-subj", "/CN=tony", "-days", DAYS]
    certificate = _run([*arguments, "-key", "/dev/stdin"], key)
    try:
        shown = ssl.PEM_cert_to_DER_cert(certificate.decode("ascii").strip())
    except ValueError as error:
        raise NoKeyPair(f"{PROGRAM} made no certificate: {error}") from None
    return pack_secret(JobSecret(secret, hashlib.sha256(shown).digest(), key + certificate))


def _run(arguments: List[str], given: bytes) -> bytes:
    program = shutil.which(PROGRAM)
    if program is None:
        raise NoKeyPair(_MISSING)
    try:
        made = tempfile.NamedTemporaryFile(prefix="tony-openssl-")  # noqa: SIM115
        made.write(CONFIG)
        made.flush()
    except OSError as error:
        why = error.strerror or str(error)
        raise NoKeyPair(f"{KEY}: {why}; make room there, or set TMPDIR to another folder") from None
    try:
        with made as config:
            done = subprocess.run(
                [program, *arguments],
                input=given,
                capture_output=True,
                timeout=TIMEOUT_S,
                env={**os.environ, "OPENSSL_CONF": config.name},
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoKeyPair(f"{KEY}: {program} {arguments[0]} failed: {error}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {done.returncode}"
        raise NoKeyPair(
            f"{KEY}: {program} {arguments[0]} failed ({why}); correct that, or set {KEY}=false"
        )
    return done.stdout
