"""Typed reading of merged entries, driven by the table of keys.

All reading goes through :meth:`Settings.read`, by a key's declared name: a key that is not
declared cannot be read, and the names that were read are recorded, so that a test can refuse a
live key that nothing reads. A value that cannot be parsed becomes a problem and reads as the
default, so that one mistake does not hide the next.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple
from urllib.parse import urlsplit

from tony_core.job import units
from tony_core.job.keys.key import Key, Kind, Off
from tony_core.job.keys.table import table
from tony_core.job.mask import is_secret
from tony_core.job.problems import Problem, Severity, did_you_mean
from tony_core.job.spec import FileRef
from tony_core.job.xmlfile import Entry

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_ARCHIVE = "#archive"


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
        self._site_sources = (site_file, defaults_from)
        self.read_names: Set[str] = set()
        self._patterns: Dict[str, List[Tuple[Entry, Mapping[str, str]]]] = {}
        for entry in entries.values():
            found = table().find(entry.key)
            if found is not None and found.key.is_pattern:
                self._patterns.setdefault(found.key.name, []).append((entry, found.parts))

    def entry(self, name: str, **parts: str) -> Optional[Entry]:
        """The entry that sets a key, if one sets it to anything."""
        key = table().by_name[name]
        self.read_names.add(name)
        actual = name
        for part, value in parts.items():
            actual = actual.replace(f"<{part}>", value)
        entry = self.entries.get(actual)
        if entry is None or key.kind is Kind.RAW:
            return entry
        return None if entry.text.strip() in ("", *key.placeholders) else entry

    def is_from_site(self, entry: Entry) -> bool:
        """Whether an administrator set it for all jobs."""
        return entry.source in self._site_sources

    def is_set(self, name: str, **parts: str) -> bool:
        """Whether a layer above the defaults sets the key."""
        return self.entry(name, **parts) is not None

    def read(self, name: str, **parts: str) -> Any:
        """The value of a key as the table declares it; its default when unset or unreadable."""
        key = table().by_name[name]
        entry = self.entry(name, **parts)
        value: Any = None
        if entry is not None:
            try:
                value = self._parse(key, entry.text)
            except ValueError as error:
                hidden = key.secret or is_secret(entry.key)
                self.problem(
                    f"the value is not {_EXPECTED[key.kind]}" if hidden else str(error), entry
                )
                entry = None
        if entry is None:
            value = _EMPTY.get(key.kind) if key.default is None else self._parse(key, key.default)
        if key.kind is Kind.FILES:
            value = self._files(value, entry)
        elif key.kind is Kind.PATH and value is not None:
            value = self.absolute(value)
        if not value and key.otherwise:
            return self.read(key.otherwise)
        return value if value is None or key.convert is None else key.convert(value)

    def read_fields(self, record: str, **parts: str) -> Dict[str, Any]:
        """The fields of a record of the job that one key each fills."""
        filling = table().filling(record)
        return {field: self.read(name, **parts) for field, name in filling.items()}

    def matching(self, name: str) -> List[Tuple[Entry, Mapping[str, str]]]:
        """Every entry that matches a pattern, with its parts."""
        self.read_names.add(name)
        return self.entries_like(name)

    def entries_like(self, name: str) -> List[Tuple[Entry, Mapping[str, str]]]:
        """The same entries, not counted as read: to see which roles there are, or for a message."""
        return self._patterns.get(table().by_name[name].name, [])

    def text(self, name: str, **parts: str) -> Optional[str]:
        value = self.read(name, **parts)
        return value if isinstance(value, str) and value else None

    def absolute(self, path: str) -> str:
        """A local path from the submitter's folder on; a URL as it is."""
        if is_url(path):
            scheme, _, rest = path.partition(":")
            return rest[2:] if scheme == "file" and rest.startswith("///") else path
        return posixpath.normpath(posixpath.join(self.cwd, path))

    def _files(self, texts: Tuple[str, ...], entry: Optional[Entry]) -> Tuple[FileRef, ...]:
        files: List[FileRef] = []
        for text in texts:
            try:
                ref = parse_file(text)
            except ValueError as error:
                self.problem(str(error), entry)
                continue
            files.append(FileRef(self.absolute(ref.source), ref.name, ref.archive))
        return self.unique_files(tuple(files), (), entry)

    def unique_files(
        self, files: Tuple[FileRef, ...], others: Tuple[FileRef, ...], entry: Optional[Entry]
    ) -> Tuple[FileRef, ...]:
        """The files without repetitions; two different files of one name are a problem."""
        taken = {ref.name: ref for ref in others}
        out: List[FileRef] = []
        for ref in files:
            twin = taken.get(ref.name)
            if twin is None:
                taken[ref.name] = ref
                out.append(ref)
            elif twin != ref:
                self.problem(
                    f"{ref.source} and {twin.source} would both be called {ref.name}: add ::name",
                    entry,
                )
            elif twin in out:
                self.problem(f"{ref.source} is named twice", entry, severity=Severity.WARNING)
        return tuple(out)

    def problem(
        self,
        message: str,
        entry: Optional[Entry] = None,
        key: Optional[str] = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Record a problem with the place of the entry."""
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
            seconds = units.parse_duration_s(text, key.unit)
            if seconds is None and key.off is Off.DEFAULT:
                return units.parse_duration_s(key.default or "", key.unit)
            return key.off.value if seconds is None else seconds
        if kind is Kind.CHOICE:
            return _parse_choice(text, key.choices)
        if kind in (Kind.LIST, Kind.ROLES, Kind.FILES):
            return units.parse_list(text)
        if kind is Kind.ACL:
            return units.parse_acl(text)
        if kind is Kind.ENVS:
            return units.parse_env_list(text)
        if kind is Kind.LIMIT:
            return units.parse_limit(text)
        if kind is Kind.PORTS:
            return units.parse_port_range(text)
        return text.strip()


def parse_file(text: str) -> FileRef:
    """One entry of a comma list of files: ``source[::name][#archive]``."""
    rest, archive = text.strip(), False
    if rest.lower().endswith(_ARCHIVE):
        rest, archive = rest[: -len(_ARCHIVE)], True
    source, marked, name = rest.rpartition("::")
    if not marked:
        source, name = rest, ""
    if not source:
        raise ValueError(f"{text!r} names no file: write source[::name][#archive]")
    if marked and not name:
        raise ValueError(f"{text!r} has no name behind ::")
    if not name:
        path = source
        if is_url(source):
            try:
                path = urlsplit(source).path
            except ValueError as error:
                raise ValueError(f"{source!r} is not a URL: {error}") from None
        name = posixpath.basename(path.rstrip("/"))
    if name in ("", ".", "..") or "/" in name:
        raise ValueError(f"{name!r} cannot be what {source!r} is called in the working folder")
    return FileRef(source, name, archive)


_EMPTY: Dict[Kind, Any] = {Kind.LIST: (), Kind.ROLES: (), Kind.FILES: (), Kind.ENVS: ()}


# What a secret value was expected to be: it is not quoted.
_EXPECTED: Dict[Kind, str] = {
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
