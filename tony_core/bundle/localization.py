"""Localizes an artifact: from what was staged to a path on this node.

What lies in the store is used where it is. An archive is unpacked beside itself, in its own
object: once for all tasks and jobs that bring the same bytes, and it goes when the object
goes. A file that stays where it is (a URL) is fetched into the store under a name made of
its URL, size and time, so that eight tasks of one host fetch it once and a new version
under the same URL is a new object. Both are made in a scratch folder and renamed. A second
process waits for the first, with a deadline, and takes over when the first has died.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from typing import Iterator

from tony_core.bundle import archive
from tony_core.bundle.archive_streams import ArchiveLimits
from tony_core.bundle.local.store import Store, StoreError, difference, move_in, write_sizes
from tony_core.files.artifact import Artifact, Kind
from tony_core.files.durable import locked, sync_tree
from tony_core.files.location import base_name, is_remote, local_path, masked
from tony_core.files.registry import filesystem

__all__ = ["ArchiveLimits", "LocalizationError", "localize", "remote_digest", "unpacked"]

WAIT_S = 1800.0  # for another process that unpacks or fetches the same thing


class LocalizationError(Exception):
    """An artifact cannot be localized; the message says which and why."""


def localize(artifact: Artifact, root: str, limits: ArchiveLimits = ArchiveLimits()) -> str:
    """The path of the artifact's content, unpacked and fetched if need be.

    What is there is shared and read-only: link to it, or copy it.
    """
    store = Store(root)
    try:
        if is_remote(artifact.uri):
            path = store.content(_fetch(store, artifact))
        else:
            path = local_path(artifact.uri)
        if artifact.kind is Kind.ARCHIVE:
            return unpacked(store, path, limits)
        os.stat(path)
    except archive.ArchiveError as error:
        message = f"{artifact.name} ({masked(artifact.source)}): {error}"
        if artifact.digest:  # it was intact when it was staged
            message = (
                f"{artifact.name}: the copy that was staged of {masked(artifact.source)} {error}:"
                f" remove the folder {os.path.dirname(path)} and submit again"
            )
        raise LocalizationError(message) from error
    except OSError as error:
        raise LocalizationError(
            f"{artifact.name} ({masked(artifact.source)}) cannot be localized: {error}"
        ) from error
    return path


def unpacked(store: Store, content: str, limits: ArchiveLimits = ArchiveLimits()) -> str:
    """The folder that an archive in the store unpacks to."""
    folder = os.path.dirname(content)
    target = os.path.join(folder, "unpacked")
    if _is_whole(target):
        return target
    with _exclusive(os.path.join(folder, "unpack.lock"), content):
        if not _is_whole(target):
            with store.scratch() as aside:
                made = os.path.join(aside, "unpacked")
                archive.extract(content, made, limits)
                sync_tree(made)
                if os.path.lexists(target):  # damaged; what runs from it goes on with the new one
                    os.rename(target, os.path.join(aside, "damaged"))
                write_sizes(made, f"{made}.json")
                sync_tree(f"{made}.json")
                os.replace(f"{made}.json", f"{target}.json")
                move_in(made, target)
    return target


def _is_whole(unpacked: str) -> bool:
    """Whether an archive's content is there, with the sizes that its files had."""
    sizes = f"{unpacked}.json"
    return os.path.isdir(unpacked) and not difference(unpacked, sizes)


def remote_digest(artifact: Artifact) -> str:
    """The store's name for a file that is used where it is, once fetched."""
    identity = f"tony-remote-1\0{artifact.uri}\0{artifact.size}\0{artifact.mtime_ms}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _fetch(store: Store, artifact: Artifact) -> str:
    digest = remote_digest(artifact)
    if store.has(digest):
        return digest
    store.prepare()
    # One of 256 files that stay: a lock that is removed could be held twice.
    lock = os.path.join(store.locks, f"fetch-{digest[:2]}")

    def fetch(target: str) -> None:
        files = filesystem(artifact.uri)
        with files.open(artifact.uri) as stream, open(target, "wb") as output:
            shutil.copyfileobj(stream, output, 1 << 20)
        size = os.stat(target).st_size
        if artifact.size and size != artifact.size:
            raise OSError(
                errno.ESTALE,
                f"has {size} bytes, but had {artifact.size} when the job was submitted",
                masked(artifact.uri),
            )
        os.chmod(target, 0o444)

    with _exclusive(lock, masked(artifact.uri)):
        store.put(digest, fetch, {"name": base_name(artifact.uri), "size": artifact.size})
    return digest


@contextlib.contextmanager
def _exclusive(path: str, what: str) -> Iterator[None]:
    """Hold a lock while unpacking or fetching; a timeout names what it waited for."""
    try:
        with locked(path, True, WAIT_S):
            yield
    except TimeoutError as error:
        raise StoreError(
            errno.ETIMEDOUT, f"another process was not done with it in {WAIT_S:.0f} s", what
        ) from error
