"""``source[::name][#archive]`` lists."""

from __future__ import annotations

import posixpath
from typing import List, Optional, Tuple
from urllib.parse import urlsplit

from tony_core.job.problems import Severity
from tony_core.job.settings import Settings, is_url
from tony_core.job.spec import FileRef
from tony_core.job.xmlreader import Entry

_ARCHIVE = "#archive"


def parse_file(text: str) -> FileRef:
    """One entry of a list; ValueError says what is wrong with it."""
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


def read_files(settings: Settings, name: str, **parts: str) -> Tuple[FileRef, ...]:
    """The files of one key, local sources made absolute."""
    entry = settings.entry(name, **parts)
    files: List[FileRef] = []
    for text in settings.read(name, **parts):
        try:
            ref = parse_file(text)
        except ValueError as error:
            settings.problem(str(error), entry)
            continue
        files.append(FileRef(settings.absolute(ref.source), ref.name, ref.archive))
    return unique(settings, tuple(files), (), entry)


def unique(
    settings: Settings,
    files: Tuple[FileRef, ...],
    others: Tuple[FileRef, ...],
    entry: Optional[Entry],
) -> Tuple[FileRef, ...]:
    """Without repetitions; two different files of one name are a problem."""
    taken = {ref.name: ref for ref in others}
    out: List[FileRef] = []
    for ref in files:
        twin = taken.get(ref.name)
        if twin is None:
            taken[ref.name] = ref
            out.append(ref)
        elif twin != ref:
            settings.problem(
                f"{ref.source} and {twin.source} would both be called {ref.name}: add ::name",
                entry,
            )
        elif twin in out:
            settings.problem(f"{ref.source} is named twice", entry, severity=Severity.WARNING)
    return tuple(out)
