"""Checkpoints and data sets on object stores (S3, Google's, Azure's) by fsspec, for :mod:`tony`.

A store has no rename, so nothing appears there by one. A checkpoint's content has a name of its own
(``data-STEP-...``), and the checkpoint is there when its mark is: one small object ``step-N`` that
names the content. The package (s3fs, gcsfs, adlfs) is the program's, and found by its own settings
(``AWS_*``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_*``, ``FSSPEC_*``).
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import importlib
import json
import os
import re
import shutil
import time
import uuid
from typing import Any, Callable, Iterator, List, Set, Tuple

import tony_hdfs
from tony_webhdfs.responses import FileStatus

__all__ = ["SCHEMES", "ObjectCheckpoints", "Objects", "connect", "fetch", "upload"]

SCHEMES = {
    "s3": ("s3", "s3fs"),
    "s3a": ("s3", "s3fs"),
    "s3n": ("s3", "s3fs"),
    "gs": ("gs", "gcsfs"),
    "gcs": ("gs", "gcsfs"),
    "abfs": ("abfs", "adlfs"),
    "abfss": ("abfs", "adlfs"),
}
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "created")
_STEP = re.compile(r"step-([0-9]{1,100})\Z")
_DATA = re.compile(r"data-[0-9]+-([0-9]{1,15})-[0-9a-f]+\Z")
_ABANDONED_MS = 3600 * 1000
_PASSWORD = re.compile(r"[^\s/:]*:[^\s/]*@")  # and its user, with a scheme before or without
_LONGEST_REASON = 500


def connect(url: str) -> Tuple[Objects, str, str]:
    """(store, path there, the whole URL); ImportError that names the package to install."""
    scheme, _, rest = url.partition("://")
    protocol, package = SCHEMES[scheme.lower()]
    address = f"{protocol}://{rest}"
    try:
        kind = importlib.import_module("fsspec").get_filesystem_class(protocol)
    except ImportError as error:
        raise ImportError(
            f"{scheme}:// needs the package {package} in the program's Python: pip install"
            f" {package} ({error})"
        ) from None
    with _translated(url):
        found = kind(**kind._get_kwargs_from_urls(address))  # an account that it names
        path = found._strip_protocol(address).rstrip("/")
    return Objects(found, scheme), path, url.rstrip("/")


@contextlib.contextmanager
def _translated(where: str) -> Iterator[None]:
    """Whatever a package raises becomes an OSError of one line that names the URL."""
    where = _PASSWORD.sub("***@", where)
    try:
        yield
    except FileNotFoundError:
        why = "no such file, or no such bucket"
        raise FileNotFoundError(errno.ENOENT, why, where) from None
    except Exception as error:
        if isinstance(error, OSError) and error.filename:
            raise
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        text = " ".join(str(error)[: 4 * _LONGEST_REASON].split())
        why = kind + _PASSWORD.sub("***@", text)[:_LONGEST_REASON]
        raise OSError(getattr(error, "errno", None) or errno.EIO, why, where) from error


class Objects:
    """A store, as far as :func:`tony_hdfs.fetch` and checkpoints need one."""

    def __init__(self, store: Any, scheme: str) -> None:
        self.store = store
        self._scheme = scheme

    def _at(self, path: str) -> Any:
        return _translated(f"{self._scheme}://{path.lstrip('/')}")

    def status(self, path: str) -> FileStatus:
        """FileNotFoundError when there is none."""
        self.store.invalidate_cache()
        with self._at(path):
            return _status(self.store.info(path), path.rpartition("/")[2])

    def names(self, path: str) -> Set[str]:
        """The names of all objects below a path."""
        self.store.invalidate_cache()
        with self._at(path):
            return set(self.store.find(path))

    def read(self, path: str) -> bytes:
        """A small object."""
        with self._at(path):
            return bytes(self.store.cat_file(path))

    def write(self, path: str, data: bytes) -> None:
        """A small object, whole or not at all."""
        with self._at(path):
            self.store.pipe_file(path, data)

    def list(self, path: str) -> List[FileStatus]:
        """The children of a path; FileNotFoundError when there are none."""
        self.store.invalidate_cache()
        with self._at(path):
            found = self.store.ls(path, detail=True)
        names = [(str(each["name"]).rstrip("/"), each) for each in found]
        return [_status(each, name.rpartition("/")[2]) for name, each in names if name != path]

    def walk(self, path: str) -> Iterator[Tuple[str, FileStatus]]:
        """(relative name, status) of all that is below a folder, folders before their content."""
        self.store.invalidate_cache()
        top = len(path.rstrip("/")) + 1
        folders = set()
        with self._at(path):
            found = sorted(self.store.find(path, detail=True).items())
        for name, info in found:
            below = name[top:]
            parts = below.split("/")
            if not below or below.startswith("/") or below.endswith("/") or ".." in parts:
                continue  # a store's own mark of an empty folder, or a name that leads elsewhere
            for at in range(1, len(parts)):
                folder = "/".join(parts[:at])
                if folder not in folders:
                    folders.add(folder)
                    yield folder, FileStatus(True, 0, 0, folder)
            yield below, _status(info, below)

    def download(self, path: str, size: int, local: str) -> None:
        """Copy an object to a local file, whole or not at all."""
        making = local + ".part"
        with self._at(path):
            self.store.get_file(path, making)
            if os.path.getsize(making) != size:
                raise OSError("it was changed while it was read")
        os.replace(making, local)

    def send(self, local: str, path: str) -> None:
        """A file, or a folder file by file."""
        if not os.path.isdir(local):
            with self._at(path):
                self.store.put_file(local, path)
            return
        for here, _, names in os.walk(local):
            below = here[len(local.rstrip("/")) :].replace(os.sep, "/")
            for name in names:
                self.send(os.path.join(here, name), f"{path}{below}/{name}")

    def delete(self, path: str) -> None:
        """An object, and all below it; nothing when there is none."""
        self.store.invalidate_cache()
        with contextlib.suppress(FileNotFoundError), self._at(path):
            self.store.rm(path, recursive=True)


def _status(info: Any, name: str) -> FileStatus:
    when = next((info[each] for each in _TIMES if info.get(each)), 0)
    if isinstance(when, str):
        try:
            when = datetime.datetime.fromisoformat(when.replace("Z", "+00:00"))
        except ValueError:
            when = 0
    if isinstance(when, datetime.datetime):
        when = when.timestamp()
    return FileStatus(
        info.get("type") == "directory", int(info.get("size") or 0), int(when * 1000), name
    )


def fetch(url: str) -> str:
    """The local copy of an object, or of all below a URL; made once per container."""
    store, path, url = connect(url)
    return tony_hdfs.fetch(store, path, url)


def upload(local: str, url: str) -> str:
    """Send a local file to a URL, whole or not at all; of a folder each file, and remove others."""
    if not os.path.exists(local):
        raise FileNotFoundError(f"{local} does not exist")
    store, path, url = connect(url)
    before = store.names(path) if os.path.isdir(local) else set()
    store.send(local, path)
    sent = {
        f"{path}{here[len(local.rstrip('/')) :]}/{name}"
        for here, _, names in os.walk(local)
        for name in names
    }
    for each in sorted(before - sent):
        store.delete(each)
    return url


def content_of(mark: bytes) -> str:
    """The name of a checkpoint's content; empty when that is no mark of one."""
    try:
        name = json.loads(mark)["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) and _DATA.match(name) else ""


class ObjectCheckpoints(tony_hdfs.HdfsCheckpoints):
    """As :class:`tony.Checkpoints`, on an object store."""

    def __init__(
        self,
        url: str,
        keep: int = 3,
        background: bool = False,
        on_saved: Callable[[int], object] = lambda step: None,
    ) -> None:
        self._store, self._top, self.folder = connect(url)
        self._begin(keep, background, on_saved)

    def fetch(self, step: int) -> str:
        """A local copy of a step."""
        data = self._data_of(step)
        return tony_hdfs.fetch(self._store, f"{self._top}/{data}", f"{self.folder}/{data}")

    def steps(self) -> List[int]:
        """The steps that are there, the oldest first."""
        found = [_STEP.match(each) for each in self._names()]
        return sorted(int(match.group(1)) for match in found if match)

    def _names(self) -> List[str]:
        try:
            return [each.name for each in self._store.list(self._top)]
        except FileNotFoundError:
            return []

    def _mark(self, step: int) -> str:
        return f"{self._top}/step-{step:010d}"

    def _data_of(self, step: int) -> str:
        name = content_of(self._store.read(self._mark(step)))
        if not name:
            with _translated(self.path(step)):
                raise OSError("this object is no mark of a checkpoint")
        return name

    def _upload(self, step: int, local: str) -> None:
        data = f"data-{step}-{int(time.time() * 1000)}-{uuid.uuid4().hex}"
        try:
            self._store.send(local, f"{self._top}/{data}")
            mark = json.dumps({"data": data}).encode()
            self._store.write(self._mark(step), mark)
        finally:
            shutil.rmtree(os.path.dirname(local), ignore_errors=True)
        self._on_saved(step)
        self._forget(step)

    def _forget(self, saved: int) -> None:
        older = [step for step in self.steps() if step != saved]
        for step in older[: max(0, len(older) + 1 - self.keep)]:
            try:
                data = self._data_of(step)
            except OSError:
                continue
            self._store.delete(self._mark(step))  # first: half a content is no checkpoint
            self._store.delete(f"{self._top}/{data}")
        names = self._names()
        marked = set()
        for name in names:
            match = _STEP.match(name)
            if match:
                try:
                    marked.add(self._data_of(int(match.group(1))))
                except OSError:
                    return  # its content is not known: nothing more is removed
        now = time.time() * 1000
        for name in names:
            match = _DATA.match(name)
            if match and name not in marked and now - int(match.group(1)) > _ABANDONED_MS:
                self._store.delete(f"{self._top}/{name}")
