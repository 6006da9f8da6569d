"""``tony gc`` below a remote root: leases and folders of ended applications, old objects.

The scheduler knows which applications have ended. One that it does not know may be a submit in
progress: its lease counts until it is a day old. An object goes when no lease names it, and
none that was given back lately; how that is safe beside submits stands in ``remote``.

A damaged object (``remove_damaged``) goes the same way, however young: away, then another look
at the leases. One that a lease names stays, for its job's nodes may yet fetch it.

Ages are measured by the cluster's clock, not by this machine's: the first thing that a
collection writes there has its time.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import AbstractSet, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from tony_core.bundle.remote.store import FOLDER_MODE, RemoteStore, is_digest
from tony_core.files.location import base_name, is_app_id, join
from tony_core.files.port import Stat

ABANDONED_S = 24 * 3600.0
"""The age at which an upload, or the lease of an unknown application, is given up."""

Ended = Callable[[str], Optional[bool]]  # by application id; None: does not know it


def collect(
    store: RemoteStore,
    older_than_s: float,
    dry_run: bool = False,
    ended: Optional[Ended] = None,
    settle_s: float = 60.0,
) -> Iterator[str]:
    """Remove what no application uses; yields a line for each thing removed."""
    if not store.files.exists(store.path):
        return
    work = _Collection(store, dry_run, ended)
    yield from work.applications()
    yield from work.objects(max(older_than_s, settle_s))
    yield from work.unfinished()


def remove_damaged(
    store: RemoteStore, digests: Iterable[str], ended: Optional[Ended] = None
) -> Dict[str, List[str]]:
    """Remove objects that are damaged; those that stay, and the applications that use each."""
    damaged = sorted(digests)
    return _Collection(store, False, ended).damaged(damaged) if damaged else {}


class _Collection:
    def __init__(self, store: RemoteStore, dry_run: bool, ended: Optional[Ended]) -> None:
        self._store = store
        self._dry_run = dry_run
        self._ended = ended or (lambda app_id: None)
        self._now = self._clock()

    def _clock(self) -> float:
        """The time now, by the cluster's clock."""
        if self._dry_run:
            return time.time()
        mark = join(self._store.trash, f"clock.{secrets.token_hex(8)}")
        self._store.files.mkdir(mark, FOLDER_MODE)
        now = self._store.files.stat(mark).mtime_ms / 1000
        self._store.files.delete(mark)
        return now

    def _age_s(self, found: Stat) -> float:
        return self._now - found.mtime_ms / 1000

    # ------------------------------------------------------------------ applications

    def applications(self) -> Iterator[str]:
        """Leases and folders of applications that need nothing any more."""
        for app_id, why, places in self._find_ended():
            yield f"job folder and lease of {app_id} ({why})"
            if not self._dry_run:
                for found in places:
                    self._store.files.delete(found.location)

    def _find_ended(self) -> Iterator[Tuple[str, str, List[Stat]]]:
        """Each application that has ended, why it counts as ended, and what it left."""
        left: Dict[str, List[Stat]] = {}
        for folder in (self._store.leases, self._store.apps):
            for found in self._store.listed(folder):
                if is_app_id(base_name(found.location)):
                    left.setdefault(base_name(found.location), []).append(found)
        for app_id, places in left.items():
            why = self._why_ended(app_id, places)
            if why is not None:
                yield app_id, why, places

    def _why_ended(self, app_id: str, places: List[Stat]) -> Optional[str]:
        """Why it needs nothing any more; None if it may need it."""
        word = self._ended(app_id)
        if word is not None:
            return "it has ended" if word else None
        inside = [item for found in places for item in self._store.listed(found.location)]
        if min(self._age_s(item) for item in (*places, *inside)) > ABANDONED_S:
            return "no application is known for it"
        return None

    # ------------------------------------------------------------------ objects

    def objects(self, older_than_s: float) -> Iterator[str]:
        """What no lease names, and none that was given back since."""
        yield from self._empty_trash()  # of a collection that died
        in_use = self._in_use()
        in_use |= self._lately_used(older_than_s)
        victims = [
            found
            for found in self._store.listed(self._store.objects)
            if is_digest(base_name(found.location))
            and base_name(found.location) not in in_use
            and self._age_s(found) >= older_than_s
        ]
        if self._dry_run:
            for found in victims:
                yield self._described(found.location, base_name(found.location))
            return
        for found in victims:
            self._move_to_trash(base_name(found.location))
        yield from self._empty_trash()

    def _move_to_trash(self, digest: str) -> str:
        away = join(self._store.trash, f"{digest}.{secrets.token_hex(8)}")
        with contextlib.suppress(FileNotFoundError):  # another collector's
            self._store.files.rename(self._store.object_path(digest), away)
        return away

    def _empty_trash(self) -> Iterator[str]:
        """Look at the leases again: what is leased again goes back, the rest is deleted."""
        away = [item for item in self._store.listed(self._store.trash) if item.is_dir]
        if self._dry_run or not away:
            return
        in_use = self._in_use()
        for found in away:
            digest = base_name(found.location).partition(".")[0]
            if digest in in_use and is_digest(digest):
                try:
                    self._store.files.rename(found.location, self._store.object_path(digest))
                    continue
                except FileNotFoundError:
                    continue  # another collector put it back
                except FileExistsError:
                    pass  # it was uploaded again
            elif digest == "clock":
                if self._age_s(found) > ABANDONED_S:
                    self._store.files.delete(found.location)
                continue
            words = self._described(found.location, digest)
            if self._store.files.delete(found.location):
                yield words

    def damaged(self, digests: List[str]) -> Dict[str, List[str]]:
        """Remove these; those that stay, and which applications use each."""
        over = {app_id for app_id, _, _ in self._find_ended()}
        users = self._users(over)
        away = {digest: self._move_to_trash(digest) for digest in digests if digest not in users}
        users = self._users(over)
        for digest, folder in away.items():
            if digest in users:
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    self._store.files.rename(folder, self._store.object_path(digest))
            self._store.files.delete(folder)  # unless it went back
        return {digest: users[digest] for digest in digests if digest in users}

    def _users(self, over: AbstractSet[str]) -> Dict[str, List[str]]:
        """By digest, the applications whose lease names it, without those that are over."""
        users: Dict[str, List[str]] = {}
        for app_id, digests in sorted(self._store.leased().items()):
            for digest in digests if app_id not in over else ():
                users.setdefault(digest, []).append(app_id)
        return users

    def _in_use(self) -> Set[str]:
        return {digest for named in self._store.leased().values() for digest in named}

    def _lately_used(self, older_than_s: float) -> Set[str]:
        """The digests of leases that were given back so lately; older marks go."""
        kept: Set[str] = set()
        marks: Dict[str, float] = {}
        for name in self._store.names(self._store.used):
            since = name.partition(".")[0]
            is_time = since.isascii() and since.isdigit() and len(since) <= 12
            marks[name] = self._now - int(since) if is_time else older_than_s
        for name, age_s in marks.items():
            folder = join(self._store.used, name)
            if age_s < older_than_s:
                kept.update(self._store.names(folder))
            elif not self._dry_run:
                self._store.files.delete(folder)
        return kept

    def _described(self, folder: str, digest: str) -> str:
        size = sum(item.size for item in self._store.listed(folder))
        return f"object {digest[:12]} ({size / 1e6:.1f} MB)"

    # ------------------------------------------------------------------ uploads

    def unfinished(self) -> Iterator[str]:
        """Uploads whose process is gone: nothing was written there for a day."""
        for found in self._store.listed(self._store.tmp):
            inner: List[Stat] = self._store.listed(found.location)
            if min(self._age_s(item) for item in (found, *inner)) <= ABANDONED_S:
                continue
            yield f"unfinished upload ({sum(item.size for item in inner) / 1e6:.1f} MB)"
            if not self._dry_run:
                self._store.files.delete(found.location)
