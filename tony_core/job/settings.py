"""Typed reading of merged entries, driven by the table of keys.

All reading goes through :meth:`Settings.read`, by a key's declared name: what is not
declared cannot be read, and what was read is recorded, so that a test can refuse a live
key that nothing reads. A value that cannot be parsed becomes a problem and reads as the
default, so that one mistake does not hide the next.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from tony_core.job import units
from tony_core.job.keys import Key, Kind, table
from tony_core.job.problems import Problem, Severity, did_you_mean
from tony_core.job.secretnames import is_secret
from tony_core.job.xmlreader import Entry

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")


class Settings:
    """The merged entries of one job."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        problems: List[Problem],
        cwd: str,
        site_file: Optional[str] = None,
        defaults_from: Optional[str] = None,
    ) -> None:
        self.entries = entries
        self.problems = problems
        self.cwd = cwd
        self.site_file = site_file
        self._of_everybody = (site_file, defaults_from)
        self.read_names: Set[str] = set()
        self._patterns: Dict[str, List[Tuple[Entry, Mapping[str, str]]]] = {}
        for entry in entries.values():
            found = table().find(entry.key)
            if found is not None and found.key.is_pattern:
                self._patterns.setdefault(found.key.name, []).append((entry, found.parts))

    def entry(self, name: str, **parts: str) -> Optional[Entry]:
        """What was said about a key, if it was set to anything."""
        key = table().by_name[name]
        self.read_names.add(name)
        actual = name
        for part, value in parts.items():
            actual = actual.replace(f"<{part}>", value)
        entry = self.entries.get(actual)
        if entry is None or key.kind is Kind.RAW:
            return entry
        return None if entry.text.strip() in ("", *key.placeholders) else entry

    def of_everybody(self, entry: Entry) -> bool:
        """Whether an administrator said it for all jobs, whatever each of them is like."""
        return entry.source in self._of_everybody

    def is_set(self, name: str, **parts: str) -> bool:
        """Whether a layer above the defaults says anything."""
        return self.entry(name, **parts) is not None

    def read(self, name: str, **parts: str) -> Any:
        """The value of a key, parsed as the table says; its default when unset or unreadable."""
        key = table().by_name[name]
        entry = self.entry(name, **parts)
        if entry is not None:
            try:
                return self._parse(key, entry.text)
            except ValueError as error:
                hidden = key.secret or is_secret(entry.key)
                self.problem(f"the value is not {_A[key.kind]}" if hidden else str(error), entry)
        default = key.default
        return _EMPTY.get(key.kind) if default is None else self._parse(key, default)

    def matching(self, name: str) -> List[Tuple[Entry, Mapping[str, str]]]:
        """Every entry that a pattern stands for, with its parts."""
        self.read_names.add(name)
        return self.like(name)

    def like(self, name: str) -> List[Tuple[Entry, Mapping[str, str]]]:
        """The same without reading them: to see which roles there are, or to say where."""
        return self._patterns.get(table().by_name[name].name, [])

    def text(self, name: str, **parts: str) -> Optional[str]:
        """A text, or None."""
        value = self.read(name, **parts)
        return value if isinstance(value, str) and value else None

    def seconds(self, name: str) -> float:
        """A duration that cannot be off: ``off`` and 0 read as the default."""
        value = self.read(name)
        if value is None:
            key = table().by_name[name]
            value = units.parse_duration_s(key.default or "", key.unit)
        return float(value)

    def path(self, name: str) -> Optional[str]:
        """A path made absolute, or a URL as it is."""
        value = self.text(name)
        return None if value is None else self.absolute(value)

    def absolute(self, path: str) -> str:
        """A local path from the submitter's folder on; a URL as it is."""
        if is_url(path):
            scheme, _, rest = path.partition(":")
            return rest[2:] if scheme == "file" and rest.startswith("///") else path
        return posixpath.normpath(posixpath.join(self.cwd, path))

    def problem(
        self,
        message: str,
        entry: Optional[Entry] = None,
        key: Optional[str] = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Record that something is wrong, at the place where it was said."""
        name = key or (entry.key if entry else None)
        if entry is None and key is not None:
            entry = self.entries.get(key)
        file = entry.source if entry else None
        line = entry.line if entry else None
        self.problems.append(Problem(message, name, file, line, severity))

    def _parse(self, key: Key, text: str) -> Any:
        kind = key.kind
        if kind is Kind.RAW:
            return text
        if kind is Kind.INT:
            return units.parse_int(text, key.at_least)
        if kind is Kind.BOOL:
            return units.parse_bool(text)
        if kind is Kind.MEMORY:
            return units.parse_memory_mb(text)
        if kind is Kind.DURATION:
            return units.parse_duration_s(text, key.unit)
        if kind is Kind.CHOICE:
            return _parse_choice(text, key.choices)
        if kind in (Kind.LIST, Kind.ROLES, Kind.FILES):
            return units.parse_list(text)
        if kind is Kind.ENVS:
            return units.parse_env_list(text)
        if kind is Kind.LIMIT:
            return units.parse_limit(text)
        if kind is Kind.PORTS:
            return units.parse_port_range(text)
        return text.strip()


_EMPTY: Dict[Kind, Any] = {Kind.LIST: (), Kind.ROLES: (), Kind.FILES: (), Kind.ENVS: ()}


# What to say of a value that may not be shown.
_A: Dict[Kind, str] = {
    kind: "a list of NAME=value (a comma inside a value is written \\,)"
    if kind is Kind.ENVS
    else f"of the kind: {kind.value}"
    for kind in Kind
}


def _parse_choice(text: str, choices: Tuple[str, ...]) -> str:
    word = text.strip()
    for choice in choices:
        if choice.lower() == word.lower():
            return choice
    raise ValueError(f"{word!r} is none of {', '.join(choices)}{did_you_mean(word, choices)}")


def is_url(path: str) -> bool:
    """Whether a path names its file system."""
    match = _SCHEME.match(path)
    return match is not None and len(match[1]) > 1


def is_remote(path: str) -> bool:
    """Whether a path is on another file system than this machine's."""
    return is_url(path) and not path.startswith("file:")
