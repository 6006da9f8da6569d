"""Which names (of keys, variables, options) say that their value is a secret.

A name is read by its words: ``db.password``, ``DB_PASSWORD``, ``dbPassword`` and
``--db-password`` are the same. Hyperparameters that have a word in common with a secret
(``max_tokens``, ``tokenizer``, ``sort_key``) are none, and neither is a name that says where a
secret lies (``..._FILE``).
"""

from __future__ import annotations

import functools
import re

ENV_PREFIXES = (
    "tony.containers.env.",
    "tony.execution.env.",
    "tony.containers.envs",
    "tony.execution.envs",
)
PLACES = ("_FILE", "_PATH", "_DIR", "_LOCATION")
"""Ends of a name whose value is where a secret lies."""

#: Each name that is_secret() accepts has one of these in it: a quick first look at a text.
HINTS = r"pass|pwd|secret|token|credential|key|auth|bearer|signature|conn|dsn|webhook"
# These in any name, in whatever words they stand.
_ALWAYS = re.compile(r"password|passwd|passphrase|passcode|secret|credential")
_KEYS = re.compile(
    r"\b(?:api|access|private|encryption|signing|account|ssh|ssl|tls|rsa|gpg|pgp|storage"
    r"|subscription|deploy|shared|service|license) ?key"
)
_PWD = re.compile(r"pwd\b|\bpwd")
_WORKING_FOLDERS = ("pwd", "oldpwd", "init cwd")
_PASS = re.compile(
    r"\b(?:db|database|user|smtp|mysql|postgres|pg|redis|ftp|http|proxy|mail|root|admin|login|vpn)"
    r" pass\b"
)
_AUTH = re.compile(r"\bauth$|\b(?:http|proxy) authorization$|^authorization$|\bbearer\b")
_SIGNATURE = re.compile(r"\b(?:amz|goog) signature$")
_CONNECTION = re.compile(r"\bconn(?:ection)? ?str(?:ing)?\b|\bdsn\b|^airflow conn |alchemy conn$")
_WEBHOOK = re.compile(r"\bwebhook\b")
_TOKEN = re.compile(r"token(?!i[sz])")
_COUNTED = re.compile(
    r"\b(?:max|min|num|n|total|per|length|len|size|count|limit|budget|pad|padding|bos|eos|cls|sep"
    r"|mask|unk|special|vocab|embeddings?|type|dropout|stop|window|stride|seq|sequence|level|loss"
    r"|context|prompt|train|trained|target)\b"
)
_GRANTS = re.compile(r"\b(?:auth|access|api|bearer|refresh|secret|hf|github)\b")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[^a-z0-9]+")


@functools.lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether people may never see the values of that name."""
    if len(name) > 512:  # no name; and what is read from it would take time
        return True
    for prefix in ENV_PREFIXES[:2]:
        if name.startswith(prefix):
            name = name[len(prefix) :]
    if name.endswith(PLACES):
        return False
    words = _BETWEEN.sub(" ", _CAMEL.sub(" ", name).lower()).strip()
    if _ALWAYS.search(words.replace(" ", "")):
        return True
    if _TOKEN.search(words):
        return bool(_GRANTS.search(words)) or not _COUNTED.search(words)
    if words in _WORKING_FOLDERS:
        return False
    found = (_KEYS, _PWD, _PASS, _AUTH, _SIGNATURE, _CONNECTION, _WEBHOOK)
    return any(pattern.search(words) for pattern in found)
