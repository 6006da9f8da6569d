"""Where a job's content is staged: a store on this machine, or one on a cluster.

Planning asks a place what it has and what it makes of a content; nothing is written yet.
The caches about the user's files are on this machine either way, in the store of
``$TONY_HOME``.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Dict,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Tuple,
)

from tony_core.bundle.client.contents import NODES_UNPACK, Content
from tony_core.bundle.client.sources import Source
from tony_core.bundle.client.staging_errors import StagingError, staging_error
from tony_core.bundle.local.store import Store, StoreError
from tony_core.bundle.remote.store import RemoteStore, Staged
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.files.durable import replace_file
from tony_core.files.location import OBJECT_STORES, base_name, is_remote, local_path, scheme_of
from tony_core.files.port import FileSystem, Stat

if TYPE_CHECKING:
    from tony_core.bundle.client.planning import Plan


class Upload(NamedTuple):
    """An object that the store must hold before the job starts."""

    digest: str
    name: str
    size: int
    present: bool  # when planned; staging checks again under its lease
    make: Callable[[str], None]
    meta: Mapping[str, Any] = {}
    # As one file, for a remote place: its name, and what writes it.
    file: str = "content"
    write: Optional[Callable[[BinaryIO], None]] = None
    damage: str = ""  # of the object that is there, which is replaced


class ResolvedSource(NamedTuple):
    """Where containers find a source, and what it is."""

    kind: Kind
    uri: str
    digest: str = ""
    size: int = 0
    mtime_ms: int = 0


class Cache(Protocol):
    """Remembers what planning found out; staging saves it."""

    def save(self) -> None:
        """Write it down."""


class Destination(ABC):
    """Where a job's files are staged, as planning sees it."""

    def __init__(self, home: Store) -> None:
        try:
            home.check_owner()  # another user's cache must not decide what a file is
        except StoreError as error:
            raise StagingError(f"{error.strerror} [{error.filename}]") from error
        self.digests = home.digests
        self.excluded = home.path  # never staged itself

    @abstractmethod
    def has(self, digest: str) -> bool:
        """Whether a folder of that digest is staged."""

    @abstractmethod
    def locate(
        self, content: Content, name: str, meta: Mapping[str, Any]
    ) -> Tuple[ResolvedSource, Upload]:
        """Where a content will be, and the upload that brings it there."""

    @abstractmethod
    def read_check(self, digest: str) -> Dict[str, Any]:
        """The result of an archive's check, if it was read whole before; else empty."""

    def save_check(self, digest: str, check: Mapping[str, Any]) -> None:
        """Remember an archive's check until :meth:`save`, unless it is stored with the object."""

    def why_unusable(self, source: Source, kind: Kind, found: Stat) -> str:
        """Why a remote source cannot be used where it is; empty when it can."""
        return ""

    def warning_of(self, source: Source, kind: Kind) -> str:
        """What may go wrong with a remote source; empty when nothing is known."""
        return ""

    def must_fetch(self, location: str) -> bool:
        """Whether a remote source must be staged all the same."""
        return scheme_of(location) in OBJECT_STORES

    def mark_staged(self, plan: Plan) -> None:
        """Mark the uploads that are staged already; called last."""

    def save(self) -> None:
        """Write down what was found out."""


def open_destination(root: str, files: Callable[[str], FileSystem]) -> Destination:
    if is_remote(root):
        return RemoteDestination(RemoteStore(root, files))
    return LocalDestination(Store(local_path(root)))


class LocalDestination(Destination):
    """Content lies in the store as it is, and is used there."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    def has(self, digest: str) -> bool:
        return self._store.has(digest)

    def locate(
        self, content: Content, name: str, meta: Mapping[str, Any]
    ) -> Tuple[ResolvedSource, Upload]:
        digest = content.digest
        record = {**meta, "name": name, "size": content.size}
        damage = self._store.damage(digest)
        present = not damage and self._store.is_there(digest)
        upload = Upload(digest, name, content.size, present, content.copy, record, damage=damage)
        uri = self._store.content(digest)
        return ResolvedSource(content.kind, uri, digest, content.size, content.mtime_ms), upload

    def read_check(self, digest: str) -> Dict[str, Any]:
        if self._store.has(digest):
            with contextlib.suppress(OSError, ValueError):
                return self._store.meta(digest)
        return {}


class RemoteDestination(Destination):
    """Content lies in the store as one file each; nodes fetch and unpack it."""

    def __init__(self, store: RemoteStore) -> None:
        super().__init__(home_store())
        self._store = store
        self._looked: Dict[str, Optional[Staged]] = {}
        self._checks: Dict[str, Mapping[str, Any]] = {}

    def has(self, digest: str) -> bool:
        with staging_error(self._store.root):
            if digest not in self._looked:
                self._looked[digest] = self._store.look(digest, "content.tar")
        return self._looked[digest] is not None

    def locate(
        self, content: Content, name: str, meta: Mapping[str, Any]
    ) -> Tuple[ResolvedSource, Upload]:
        packed = content.packed()
        upload = Upload(
            packed.digest, name, packed.size, False, content.copy, meta, packed.file, packed.write
        )
        uri = self._store.content(packed.digest, packed.file)
        return ResolvedSource(packed.kind, uri, packed.digest, packed.size), upload

    def read_check(self, digest: str) -> Dict[str, Any]:
        try:
            with open(self._check_path(digest), encoding="utf-8") as stream:
                data = json.load(stream)
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def save_check(self, digest: str, check: Mapping[str, Any]) -> None:
        self._checks[digest] = check

    def _check_path(self, digest: str) -> str:
        return os.path.join(self.digests, f"archive-{digest[:32]}.json")

    def save(self) -> None:
        for digest, check in self._checks.items():
            data = json.dumps(check).encode()
            replace_file(self._check_path(digest), data, sync=False)
        self._checks.clear()

    def why_unusable(self, source: Source, kind: Kind, found: Stat) -> str:
        name = base_name(source.location).lower()
        if kind is Kind.ARCHIVE and not found.is_dir and not name.endswith(NODES_UNPACK):
            return (
                f"the cluster's nodes do not unpack it (they do {', '.join(NODES_UNPACK)}); "
                "pack it as one of these, or name a copy on this machine"
            )
        return ""

    def warning_of(self, source: Source, kind: Kind) -> str:
        if source.use is not Use.VENV or not base_name(source.location).lower().endswith(".zip"):
            return ""
        return (
            "the cluster's nodes make no symbolic links from a zip, and a virtual environment "
            "has some; pack it as tar.gz, or name a copy on this machine"
        )

    def must_fetch(self, location: str) -> bool:
        return scheme_of(location) in ("http", "https", *OBJECT_STORES)

    def mark_staged(self, plan: Plan) -> None:
        files = {item.digest: item.file for item in plan.uploads}
        missing = {name: file for name, file in files.items() if name not in self._looked}
        with staging_error(self._store.root):
            self._looked.update(self._store.look_all(missing))
        plan.uploads = tuple(
            item._replace(present=self._looked[item.digest] is not None) for item in plan.uploads
        )
        staged = {digest: item for digest, item in self._looked.items() if item is not None}
        plan.artifacts = with_staged_times(plan.artifacts, staged)


def with_staged_times(
    artifacts: Tuple[Artifact, ...], staged: Mapping[str, Staged]
) -> Tuple[Artifact, ...]:
    """The artifacts with the size and time of their objects in the store."""
    return tuple(
        item._replace(size=staged[item.digest].size, mtime_ms=staged[item.digest].mtime_ms)
        if item.digest in staged
        else item
        for item in artifacts
    )


def home_store() -> Store:
    """The store of this machine, where clients of a cluster keep their caches."""
    return Store(os.path.expanduser(os.environ.get("TONY_HOME") or "~/.tony"))
