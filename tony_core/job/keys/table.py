"""The table of keys that a job file may hold.

Every ``tony.*`` key is declared once, in one of the modules beside this one: name, kind,
unit, default, doc, status and the field of the job that it fills. Building the job, `tony config
keys`, the reference page and "did you mean" all come from this table.

A name may hold placeholders: ``<role>``, ``<group>``, ``<resource>`` stand for one part
between dots (a resource may hold dots), ``<any>`` for whatever follows.
"""

from __future__ import annotations

import functools
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.job.keys import application, from_jvm, roles, site, timeouts, tracking
from tony_core.job.keys.key import Key, Status
from tony_core.job.problems import did_you_mean

APPENDING = ("tony.containers.envs", "tony.execution.envs", "tony.containers.resources")

RESERVED_ROLES = frozenset(
    (
        *("application", "task", "am", "container", "containers", "docker", "execution"),
        *("history", "portal", "yarn", "horovod", "driver", "client", "runtime", "keytab"),
        *("kerberos", "mlflow"),
        *("http", "https", "secret", "other", "version-info"),
        *("gpu-exec-path", "python-exec-path"),
        "local",  # tony.local.memory is the embedded scheduler's
    )
)
WELL_KNOWN_ROLES = [
    *("chief", "worker", "ps", "evaluator", "tensorboard", "scheduler", "server", "notebook"),
    *("launcher", "master", "head"),
]
ROLE_NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)

_DOTTED = ("any", "resource")  # a resource may be called yarn.io/fpga
_PLACEHOLDER = re.compile(r"<([a-z]+)>")


def _compile(name: str) -> re.Pattern[str]:
    out, at = "", 0
    for match in _PLACEHOLDER.finditer(name):
        out += re.escape(name[at : match.start()])
        out += f"(?P<{match[1]}>{'.+' if match[1] in _DOTTED else '[^.]+'})"
        at = match.end()
    return re.compile(out + re.escape(name[at:]), re.DOTALL)


class Found(NamedTuple):
    """A key of the table, and what its placeholders stand for."""

    key: Key
    parts: Mapping[str, str]


class Table:
    """All keys, found by the names in a job file."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys: Tuple[Key, ...] = tuple(keys)
        self.by_name: Dict[str, Key] = {key.name: key for key in keys}
        if len(self.by_name) != len(self.keys):
            raise ValueError("a key is declared twice")
        self._filling: Dict[str, Dict[str, str]] = {}
        for key in keys:
            record, _, field = key.fills.rpartition(".")
            if (
                field
                and self._filling.setdefault(record, {}).setdefault(field, key.name) != key.name
            ):
                raise ValueError(f"two keys fill {key.fills}")
        # The longest fixed beginning first: tony.driver.<any> is tried before
        # tony.<role>.instances.
        patterns = [key for key in keys if key.is_pattern]
        patterns.sort(key=lambda key: (-key.name.index("<"), -len(key.name)))
        self._patterns = [(key, _compile(key.name)) for key in patterns]

    def find(self, name: str) -> Optional[Found]:
        """The key of a name in a job file; None if there is none."""
        exact = self.by_name.get(name)
        if exact is not None and not exact.is_pattern:
            return Found(exact, {})
        for key, pattern in self._patterns:
            match = pattern.fullmatch(name)
            if match is not None:
                return Found(key, match.groupdict())
        return None

    def filling(self, record: str) -> Mapping[str, str]:
        """The fields of a record that one key each fills, with the keys."""
        return self._filling[record]

    def suggest(self, name: str, roles: Sequence[str] = ()) -> str:
        """`` (did you mean ...?)`` for a name that :meth:`find` does not know."""
        known: List[str] = []
        parts = name.split(".")
        guesses = list(dict.fromkeys([*parts[1:2], *parts[2:3], *roles, *WELL_KNOWN_ROLES]))
        for key in self.keys:
            if key.status is not Status.LIVE or "<any>" in key.name:
                continue
            if "<role>" in key.name:
                known.extend(key.name.replace("<role>", guess) for guess in guesses)
            else:
                known.append(key.name)
        return did_you_mean(name, known)


@functools.cache
def table() -> Table:
    return Table(
        [*roles.KEYS, *application.KEYS, *timeouts.KEYS, *site.KEYS, *tracking.KEYS, *from_jvm.KEYS]
    )


def modern_name(name: str) -> str:
    """The modern name of a renamed key; any other name as it is."""
    key = table().by_name.get(name)
    return key.alias if key is not None and key.status is Status.RENAMED else name
