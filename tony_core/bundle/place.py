"""Where a job's content is staged: a store on this machine, or one on a cluster.

Planning asks a place what it has and what it makes of a content; nothing is written yet.
What was learnt about the user's files is kept on this machine either way, in the store of
``$TONY_HOME``.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
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

from tony_core.bundle.contents import NODES_UNPACK, Content
from tony_core.bundle.failures import StagingError, staging_error
from tony_core.bundle.local.store import Store, StoreError
from tony_core.bundle.remote.store import RemoteStore, Staged
from tony_core.bundle.requested import Want
from tony_core.files.artifact import Kind, Use
from tony_core.files.durable import replace_file
from tony_core.files.location import OBJECT_STORES, base_name, is_remote, local_path, scheme_of
from tony_core.files.port import FileSystem, Stat

if TYPE_CHECKING:
    from tony_core.bundle.planning import Plan


@dataclass(frozen=True)
class Upload:
    """One object that the store must hold before the job starts."""

    digest: str
    name: str
    size: int
    present: bool  # when planned; staging looks again under its lease
    make: Callable[[str], None] = field(repr=False, compare=False)
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    # As one file, for a remote place: its name, and what writes it.
    file: str = field(default="content", repr=False)
    write: Optional[Callable[[BinaryIO], None]] = field(default=None, repr=False, compare=False)
    damage: str = ""  # what is wrong with the object of that name, which is put again


class Found(NamedTuple):
    """What a source turned out to be."""

    kind: Kind
    uri: str
    digest: str = ""
    size: int = 0
    mtime_ms: int = 0


class Cache(Protocol):
    """Something learnt while planning that staging may keep."""

    def save(self) -> None:
        """Keep it."""


class Place(ABC):
    """A staging place, as planning sees it."""

    def __init__(self, home: Store) -> None:
        try:
            home.check_owner()  # what another user wrote there must not say what a file is
        except StoreError as error:
            raise StagingError(f"{error.strerror} [{error.filename}]") from error
        self.digests = home.digests
        self.apart = home.path  # never staged itself

    @abstractmethod
    def has(self, digest: str) -> bool:
        """Whether a folder of that digest is staged."""

    @abstractmethod
    def found(self, content: Content, name: str, meta: Mapping[str, Any]) -> Tuple[Found, Upload]:
        """Where a content will be, and the object it becomes."""

    @abstractmethod
    def judgement(self, digest: str) -> Dict[str, Any]:
        """What was remembered of an archive that has been read whole once."""

    def judge(self, digest: str, judgement: Mapping[str, Any]) -> None:
        """An archive has been read; kept by :meth:`save`, unless it stays with the object."""

    def cannot_use(self, want: Want, kind: Kind, found: Stat) -> str:
        """Why what stands elsewhere cannot be used where it is; empty when it can."""
        return ""

    def doubt(self, want: Want, kind: Kind) -> str:
        """What may go wrong with what stands elsewhere; empty when nothing is known."""
        return ""

    def must_fetch(self, source: str) -> bool:
        """Whether what stands elsewhere must be staged all the same."""
        return scheme_of(source) in OBJECT_STORES

    def look(self, plan: Plan) -> None:
        """Last: fill in what is there already."""

    def save(self) -> None:
        """Keep what was learnt."""


def place_of(root: str, files: Callable[[str], FileSystem]) -> Place:
    """The staging place of that root."""
    if is_remote(root):
        return RemotePlace(RemoteStore(root, files))
    return LocalPlace(Store(local_path(root)))


class LocalPlace(Place):
    """Content lies in the store as it is, and is used there."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    def has(self, digest: str) -> bool:
        return self._store.has(digest)

    def found(self, content: Content, name: str, meta: Mapping[str, Any]) -> Tuple[Found, Upload]:
        digest = content.digest
        said = {**meta, "name": name, "size": content.size}
        damage = self._store.damage(digest)
        present = not damage and self._store.is_there(digest)
        upload = Upload(digest, name, content.size, present, content.copy, said, damage=damage)
        uri = self._store.content(digest)
        return Found(content.kind, uri, digest, content.size, content.mtime_ms), upload

    def judgement(self, digest: str) -> Dict[str, Any]:
        if self._store.has(digest):
            with contextlib.suppress(OSError, ValueError):
                return self._store.meta(digest)
        return {}


class RemotePlace(Place):
    """Content lies in the store as one file each; nodes fetch and unpack it."""

    def __init__(self, store: RemoteStore) -> None:
        super().__init__(home_store())
        self._store = store
        self._looked: Dict[str, Optional[Staged]] = {}
        self._judged: Dict[str, Mapping[str, Any]] = {}

    def has(self, digest: str) -> bool:
        with staging_error(self._store.root):
            if digest not in self._looked:
                self._looked[digest] = self._store.look(digest, "content.tar")
        return self._looked[digest] is not None

    def found(self, content: Content, name: str, meta: Mapping[str, Any]) -> Tuple[Found, Upload]:
        packed = content.packed()
        upload = Upload(
            packed.digest, name, packed.size, False, content.copy, meta, packed.file, packed.write
        )
        uri = self._store.content(packed.digest, packed.file)
        return Found(packed.kind, uri, packed.digest, packed.size), upload

    def judgement(self, digest: str) -> Dict[str, Any]:
        try:
            with open(self._judgement_path(digest), encoding="utf-8") as stream:
                data = json.load(stream)
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def judge(self, digest: str, judgement: Mapping[str, Any]) -> None:
        self._judged[digest] = judgement

    def _judgement_path(self, digest: str) -> str:
        return os.path.join(self.digests, f"archive-{digest[:32]}.json")

    def save(self) -> None:
        for digest, judgement in self._judged.items():
            data = json.dumps(judgement).encode()
            replace_file(self._judgement_path(digest), data, sync=False)
        self._judged.clear()

    def cannot_use(self, want: Want, kind: Kind, found: Stat) -> str:
        name = base_name(want.source).lower()
        if kind is Kind.ARCHIVE and not found.is_dir and not name.endswith(NODES_UNPACK):
            return (
                f"the cluster's nodes do not unpack it (they do {', '.join(NODES_UNPACK)}); "
                "pack it as one of these, or name a copy on this machine"
            )
        return ""

    def doubt(self, want: Want, kind: Kind) -> str:
        if want.use is not Use.VENV or not base_name(want.source).lower().endswith(".zip"):
            return ""
        return (
            "the cluster's nodes make no symbolic links from a zip, and a virtual environment "
            "has some; pack it as tar.gz, or name a copy on this machine"
        )

    def must_fetch(self, source: str) -> bool:
        return scheme_of(source) in ("http", "https", *OBJECT_STORES)

    def look(self, plan: Plan) -> None:
        files = {item.digest: item.file for item in plan.uploads}
        missing = {name: file for name, file in files.items() if name not in self._looked}
        with staging_error(self._store.root):
            self._looked.update(self._store.look_all(missing))
        plan.uploads = tuple(
            replace(item, present=self._looked[item.digest] is not None) for item in plan.uploads
        )
        staged = {digest: item for digest, item in self._looked.items() if item is not None}
        plan.artifacts = tuple(
            item._replace(size=staged[item.digest].size, mtime_ms=staged[item.digest].mtime_ms)
            if item.digest in staged
            else item
            for item in plan.artifacts
        )


def home_store() -> Store:
    """The store of this machine, where a cluster's clients remember what they learnt."""
    return Store(os.path.expanduser(os.environ.get("TONY_HOME") or "~/.tony"))
