"""An object store in memory behind the scheme ``s3``: fsspec's own, by fsspec's own registry."""

from __future__ import annotations

from typing import Any, Iterator

import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry


class MemoryStore(MemoryFileSystem):  # type: ignore[misc]
    """Paths are ``/bucket/key``, as of the memory file system; no store has a rename."""

    protocol = "s3"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("s3://", "/", 1)))

    def mv(self, *args: Any, **words: Any) -> None:
        raise NotImplementedError("an object store has no rename")


def installed() -> Iterator[MemoryStore]:
    """The store, empty, for as long as a test wants it."""
    fsspec.register_implementation("s3", MemoryStore, clobber=True)
    MemoryStore.store.clear()
    MemoryStore.clear_instance_cache()
    yield fsspec.filesystem("s3")
    MemoryStore.store.clear()
    MemoryStore.clear_instance_cache()
    _registry.pop("s3", None)
