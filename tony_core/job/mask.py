"""Which names say that their value is a secret, and what people may see of a value.

A name is read by its words: ``db.password``, ``DB_PASSWORD``, ``dbPassword`` and
``--db-password`` are the same. Hyperparameters that have a word in common with a secret
(``max_tokens``, ``tokenizer``, ``sort_key``) are none, and neither is a name that says where a
secret lies (``..._FILE``).

Standard library only: the master's page masks too.
"""

from __future__ import annotations

import binascii
import functools
import json
import re
import shlex
from typing import (
    TYPE_CHECKING,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Pattern,
    Set,
    Tuple,
)
from urllib.parse import quote, quote_plus

from tony_core.job.spec import Job, Setting

if TYPE_CHECKING:
    from tony_core.job.problems import Problem

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

MASK = "********"
# user:password@ in a URL. The user part holds no slash, so a path with an @ stays.
_USER_INFO = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,20}://)(?P<info>[^\s/?#@]*(?:@[^\s/?#@]*)*)@")
# `--token abc`, `TOKEN=abc`, `"token": "abc"`; `the token expired` is prose.
_ASSIGNED = re.compile(
    rf"(?<![A-Za-z0-9_.-])(?P<name>(?=[A-Za-z0-9_.-]{{0,120}}?(?:{HINTS}))[A-Za-z0-9_.-]{{1,160}})"
    r"(?P<mark>\s*=\s*|[\"']\s*:\s*(?=[\"'])|(?P<space>\s+))"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&|]+)",
    re.IGNORECASE,
)
# The credentials of an HTTP request, and those that stand in a URL's query.
_BEARER = re.compile(r"\b(?P<kind>Bearer|Basic)(?P<mark>\s+)(?P<value>[A-Za-z0-9._~+/-]{8,}=*)")
_SIGNED = re.compile(r"(?P<name>[?&]sig)=(?P<value>[^\s&\"'#]+)")
SHORTEST = 6  # a shorter value would cover innocent words
_ARMOUR = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")


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


def mask_text(text: str) -> str:
    """Free text (a command, an error) without user info in URLs and values given to secrets."""
    text = _USER_INFO.sub(lambda match: f"{match[1]}{MASK}@", text)
    text = _BEARER.sub(lambda match: f"{match['kind']}{match['mark']}{MASK}", text)
    text = _SIGNED.sub(lambda match: f"{match['name']}={MASK}", text)
    out, at = [], 0
    for match in _assignments(text):
        out += [text[at : match.start("value")], MASK]
        at = match.end()
    return "".join([*out, text[at:]]) if out else text


def _assignments(text: str) -> Iterator[re.Match[str]]:
    """Where a value is given to a name that is a secret's."""
    at = 0
    while True:
        match = _ASSIGNED.search(text, at)
        if match is None:
            return
        # After a space it is an option's value, or prose.
        given = match["space"] is None or match["name"].startswith("-")
        if given and is_secret(match["name"].lstrip("-")):
            yield match
            at = match.end()
        else:
            at = match.end("name")


def written_forms(secret: str) -> List[str]:
    """How a program may write a secret: as it is, line by line, escaped and encoded."""
    if len(secret.strip()) < SHORTEST:
        return []
    lines = [line.strip() for line in secret.splitlines()]
    several = [line for line in lines if len(line) >= SHORTEST and not _ARMOUR.fullmatch(line)]
    found: Dict[str, None] = dict.fromkeys([secret, secret.strip(), *several])
    data = secret.encode("utf-8", "surrogatepass")
    for text in dict.fromkeys([secret, secret.strip(), *several]):
        for safe in ("", "/"):
            found[quote(text, safe, errors="surrogatepass")] = None
        found[quote_plus(text, errors="surrogatepass")] = None
    for text in dict.fromkeys([secret, secret.strip()]):
        found[json.dumps(text)[1:-1]] = None
        found[json.dumps(text, ensure_ascii=False)[1:-1]] = None
        found[repr(text)[1:-1]] = None
        found[repr(text.encode("utf-8", "surrogatepass"))[2:-1]] = None
        found[shlex.quote(text)] = None
    found[data.hex()] = None
    for before in range(3):  # it may begin anywhere in what was encoded
        encoded = binascii.b2a_base64(bytes(before) + data, newline=False).decode()
        end = len(encoded) - (0, 3, 2)[(before + len(data)) % 3]
        whole = encoded[(0, 2, 3)[before] : end]
        if len(whole) >= 8:
            found[whole] = None
            found[whole.replace("+", "-").replace("/", "_")] = None
    return [form for form in found if len(form) >= SHORTEST]


class KnownSecrets:
    """Covers values that are known to be secret, however a program writes them."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = dict.fromkeys(form for value in values for form in written_forms(value))
        known = sorted(forms, key=len, reverse=True)
        self._known: Optional[Pattern[str]] = None
        if known:
            self._known = re.compile("|".join(map(re.escape, known)))

    def mask(self, text: str) -> str:
        """The text without them, and without what looks like a secret by itself."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return mask_text(text)


def mask_value(key: str, text: str) -> str:
    """A value of a configuration key as people may see it."""
    if not text.strip():
        return text
    if is_secret(key):
        return MASK
    if key in ("tony.containers.envs", "tony.execution.envs"):
        return ",".join(_mask_pair(pair) for pair in re.split(r"(?<!\\),", text))
    if key.startswith(ENV_PREFIXES):
        return MASK
    return mask_text(text)


def secrets_in(key: str, text: str) -> List[str]:
    """What :func:`mask_value` hides of a value because it is secret, for another program's mask.

    Of an environment, whose values are hidden one and all, those whose names say so: another mask
    would hide every ``1`` and ``true`` wherever it stands.
    """
    if is_secret(key):
        return [text] if text.strip() else []
    if key in ("tony.containers.envs", "tony.execution.envs"):
        pairs = (pair.partition("=") for pair in re.split(r"(?<!\\),", text))
        return [
            hidden
            for name, _, value in pairs
            for hidden in secrets_in(name.strip(), value.replace("\\,", ","))
        ]
    found = [match["info"].partition(":")[2] for match in _USER_INFO.finditer(text)]
    found += [match["value"].strip("\"'") for match in _assignments(text)]
    found += [match["value"] for match in (*_BEARER.finditer(text), *_SIGNED.finditer(text))]
    return [hidden for hidden in found if hidden]


def job_secrets(job: Job) -> Set[str]:
    """The values in a job that are secret by their names."""
    values = {hidden for item in job.settings for hidden in secrets_in(item.key, item.value)}
    for name, value in (*job.program.shell_env, *job.program.container_env):
        if is_secret(name):
            values.add(value)
    values.update(text for text in (job.mlflow.password, job.mlflow.token) if text)
    return values


def mask_env(env: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    """The names of an environment, every value hidden."""
    return tuple((name, MASK) for name in env)


def mask_settings(settings: Tuple[Setting, ...]) -> Tuple[Setting, ...]:
    """Settings as people may see them."""
    return tuple(
        Setting(item.key, mask_value(item.key, item.value), mask_text(item.source), item.final)
        for item in settings
    )


def mask_problems(problems: List[Problem]) -> List[str]:
    """Problems as lines, without what they may quote of secrets."""
    return [mask_text(str(problem)) for problem in problems]


def _mask_pair(pair: str) -> str:
    # Without "=" it may be the rest of a value whose comma was not escaped.
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals else MASK
