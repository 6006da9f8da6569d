"""Artifacts as YARN's local resources: files that a node puts into a container's folder.

A node caches them: PUBLIC ones for all users, PRIVATE ones for their user, so that the next job
finds them there; APPLICATION ones are removed with the job. A node refuses a PUBLIC file unless
the file and all folders above it are open to all users, so that is checked first.

A node puts each file into the folder under one name only, without an error: of several names for
one file it keeps the last. So YARN gets the first name, and ``node/start.py`` links the others.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.files.location import scheme_of
from tony_core.files.port import FileSystem
from tony_core.hadoop.yarn.launch import PRIVATE, PUBLIC, LocalFile

MASTER = "am"
_EXECUTE, _READ = 0o001, 0o004


def select_master_artifacts(artifacts: Iterable[Artifact], *, preprocess: bool) -> List[Artifact]:
    """The artifacts of the master's container: TonY's own code, the master's own, and those of
    every task if the preprocessing command runs in it."""
    return [
        item
        for item in artifacts
        if item.use is Use.RUNTIME
        or MASTER in item.roles
        or (preprocess and item.wanted_by(MASTER))
    ]


def local_files(
    artifacts: Iterable[Artifact], visibility: Mapping[str, str]
) -> Dict[str, LocalFile]:
    """Local resources by their name in the container's folder. ``visibility`` is by URI."""
    return {item.name: local_file(item, visibility.get(item.uri, PRIVATE)) for item in artifacts}


def split_links(
    files: Mapping[str, LocalFile],
) -> Tuple[Dict[str, LocalFile], Dict[str, str]]:
    """The files under one name each, and the further names as links (name to target)."""
    first: Dict[LocalFile, str] = {}
    links: Dict[str, str] = {}
    for name, file in files.items():
        if first.setdefault(file, name) != name:
            links[name] = first[file]
    return {name: file for name, file in files.items() if name not in links}, links


def local_file(item: Artifact, visibility: str = PRIVATE) -> LocalFile:
    """An artifact as a local resource. YARN compares no times of files on web servers."""
    web = scheme_of(item.uri) in ("http", "https")
    return LocalFile(
        location=item.uri,
        size=item.size,
        timestamp_ms=0 if web else item.mtime_ms,
        archive=item.kind is Kind.ARCHIVE,
        visibility=visibility,
    )


def visibility_by_uri(entries: Iterable[Mapping[str, Any]]) -> Dict[str, str]:
    """The visibility of each artifact of the master's credentials, by URI."""
    return {str(one["uri"]): str(one["visibility"]) for one in entries if one.get("visibility")}


class Visibility:
    """Finds the visibility of artifacts, once for each."""

    def __init__(self, root: str, files: Callable[[str], FileSystem]) -> None:
        self._root = root.rstrip("/") + "/"
        self._files = files
        self._open: Dict[str, bool] = {}
        self._known: Dict[str, str] = {}

    def of(self, item: Artifact) -> str:
        """An artifact's visibility: PRIVATE below the user's own staging root."""
        if item.uri not in self._known:
            self._known[item.uri] = self._find(item)
        return self._known[item.uri]

    def __call__(self, artifacts: Iterable[Artifact]) -> Dict[str, str]:
        """The visibility of several artifacts, by URI."""
        return {item.uri: self.of(item) for item in artifacts}

    def _find(self, item: Artifact) -> str:
        scheme = scheme_of(item.uri)
        if item.uri.startswith(self._root) or scheme not in ("hdfs", "webhdfs", "swebhdfs"):
            return PRIVATE
        try:
            needed = _READ | _EXECUTE if item.kind is Kind.FOLDER else _READ
            return PUBLIC if self._is_open(item.uri, needed) else PRIVATE
        except OSError:
            return PRIVATE  # its user may not even see it

    def _is_open(self, location: str, needed: int) -> bool:
        key = f"{needed}:{location}"
        if key not in self._open:
            mode = self._files(location).stat(location).mode
            may = mode is not None and mode & needed == needed
            parent = _parent(location)
            self._open[key] = may and (not parent or self._is_open(parent, _EXECUTE))
        return self._open[key]


def _parent(location: str) -> str:
    """The folder above; empty for the root of a file system."""
    start, path = _split(location)
    trimmed = path.rstrip("/")
    if not trimmed:
        return ""
    return start + (trimmed.rpartition("/")[0] or "/")


def _split(location: str) -> Tuple[str, str]:
    scheme, _, rest = location.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority}", slash + path
