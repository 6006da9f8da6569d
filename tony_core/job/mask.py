"""What people may see of a value. Standard library only: the master's page masks too."""

from __future__ import annotations

import re
from typing import List, Mapping, Tuple

from tony_core.job.keys import ENV_PREFIXES, SECRET
from tony_core.job.problems import Problem
from tony_core.job.spec import Setting

MASK = "********"
# user:password@ in a URL. The user part holds no slash, so a path with an @ stays.
_USER_INFO = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,20}://)(?P<info>[^\s/?#@]*(?:@[^\s/?#@]*)*)@")
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]{0,64}(?:password|passwd|secret|token|credential|access[._-]?key)"
    r"[A-Za-z0-9_.-]{0,64})(?P<mark>\s*=\s*|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&|]+)",
    re.IGNORECASE,
)


def is_secret(key: str) -> bool:
    """Whether people may never see the values of a key."""
    return SECRET.search(key) is not None


def mask_text(text: str) -> str:
    """Free text (a command, an error) without user info in URLs and values given to secrets."""
    text = _USER_INFO.sub(lambda match: f"{match[1]}{MASK}@", text)
    return _ASSIGNED.sub(_assigned, text)


def _assigned(match: re.Match[str]) -> str:
    return f"{match['name']}{match['mark']}{MASK}" if _is_assigned(match) else match[0]


def _is_assigned(match: re.Match[str]) -> bool:
    # `--token abc` is a secret; `the token expired` is prose.
    return "=" in match["mark"] or match["name"].startswith("-")


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
    """What :func:`mask_value` hides of a value because it is secret, for somebody else's mask.

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
    found += [m["value"].strip("\"'") for m in _ASSIGNED.finditer(text) if _is_assigned(m)]
    return [hidden for hidden in found if hidden]


def mask_env(env: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    """The names of an environment, every value hidden."""
    return tuple((name, MASK) for name in env)


def mask_settings(settings: Tuple[Setting, ...]) -> Tuple[Setting, ...]:
    """Settings as people may see them."""
    return tuple(
        Setting(item.key, mask_value(item.key, item.value), item.source, item.final)
        for item in settings
    )


def mask_problems(problems: List[Problem]) -> List[str]:
    """Problems as lines, without what they may quote of secrets."""
    return [mask_text(str(problem)) for problem in problems]


def _mask_pair(pair: str) -> str:
    # Without "=" it may be the rest of a value whose comma was not escaped.
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals else MASK
