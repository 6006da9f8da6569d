"""Reading object stores (``s3a``, ``gs``, ``abfs``) by fsspec, where its package is installed.

Only where a job is submitted: the client fetches what is there and stages it. Nodes have only the
standard library, and programs read by themselves (``tony.dataset``). fsspec is imported when such a
location is used first. Credentials and the store's address are set as each package reads them:
``AWS_*``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_*``,
``FSSPEC_*``.
"""

from __future__ import annotations

import datetime
import errno
import importlib
import logging
import re
from typing import Any, BinaryIO, Dict, List, Tuple, cast

from tony_core.files.location import join, masked, scheme_of
from tony_core.files.port import ReadOnlyFileSystem, Stat, UnsupportedLocation

#: scheme -> (fsspec's name for it, the package, our extra)
STORES: Dict[str, Tuple[str, str, str]] = {
    "s3": ("s3", "s3fs", "s3"),
    "s3a": ("s3", "s3fs", "s3"),
    "s3n": ("s3", "s3fs", "s3"),
    "gs": ("gs", "gcsfs", "gcs"),
    "gcs": ("gs", "gcsfs", "gcs"),
    "abfs": ("abfs", "adlfs", "azure"),
    "abfss": ("abfs", "adlfs", "azure"),
}
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "created")
_LONGEST_REASON = 500
_PASSWORD = re.compile(r"[^\s/:]*:[^\s/]*@")  # and its user, with a scheme before or without
_UNSEEN = logging.NullHandler()


class ObjectFileSystem(ReadOnlyFileSystem):
    """A folder is a common beginning of names."""

    refusal = (errno.EROFS, "object stores are only read here")

    def stat(self, location: str) -> Stat:
        with _OpenStore(location) as (store, path):
            return _stat(location, store.info(path))

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        if offset < 0:
            raise ValueError(f"{masked(location)}: nothing lies before the file's first byte")
        with _OpenStore(location) as (store, path):
            stream = store.open(path, "rb")
            if offset:
                stream.seek(min(offset, int(store.info(path).get("size") or 0)))
            return cast(BinaryIO, stream)

    def list(self, location: str) -> List[Stat]:
        with _OpenStore(location) as (store, path):
            if store.info(path).get("type") != "directory":
                raise NotADirectoryError(errno.ENOTDIR, "this is a file", masked(location))
            top = path.rstrip("/").rpartition("/")[2]
            found = []
            for item in store.ls(path, detail=True):
                name = str(item["name"]).rstrip("/").rpartition("/")[2]
                if name and (name != top or item.get("type") == "directory"):
                    found.append(_stat(join(location, name), item))
            return sorted(found, key=lambda stat: stat.location)


class _OpenStore:
    """The store of a location and the path there; whatever its package raises is an ``OSError``."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> Tuple[Any, str]:
        scheme = scheme_of(self._location)
        protocol, package, extra = STORES[scheme]
        _, _, rest = self._location.partition("://")
        address = f"{protocol}://{rest}"
        # Some log what they raise as well, which only a configured logging should print.
        logging.getLogger(package).addHandler(_UNSEEN)
        try:
            kind = importlib.import_module("fsspec").get_filesystem_class(protocol)
            store = kind(**kind._get_kwargs_from_urls(address))  # an account that it names
        except ImportError as error:
            raise UnsupportedLocation(
                errno.EPROTONOSUPPORT,
                f"{scheme}:// needs the package {package}, which is not installed here: pip install"
                f" {package}, or TonY with its extra {extra} ({error})",
                masked(self._location),
            ) from None
        except Exception as error:  # most often for want of credentials
            self._raise(error)
            raise
        store.invalidate_cache()
        return store, store._strip_protocol(address)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._raise(error)

    def _raise(self, error: object) -> None:
        if not isinstance(error, Exception):
            return
        where = masked(self._location)
        if isinstance(error, FileNotFoundError):
            why = "no such file, or no such bucket"
            raise FileNotFoundError(errno.ENOENT, why, where) from None
        if not isinstance(error, OSError) or error.filename is None:
            kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
            text = " ".join(str(error)[: 4 * _LONGEST_REASON].split())
            why = kind + _PASSWORD.sub("****@", text)[:_LONGEST_REASON]
            raise OSError(getattr(error, "errno", None) or errno.EIO, why, where) from error


def _stat(location: str, info: Dict[str, Any]) -> Stat:
    return Stat(
        location,
        info.get("type") == "directory",
        int(info.get("size") or 0),
        next((milliseconds(info[name]) for name in _TIMES if info.get(name)), 0),
    )


def milliseconds(when: Any) -> int:
    """A time as stores report it: a datetime, its text, or seconds."""
    if isinstance(when, str):
        try:
            when = datetime.datetime.fromisoformat(when.replace("Z", "+00:00"))
        except ValueError:
            return 0
    if isinstance(when, datetime.datetime):
        when = when.timestamp()
    return int(when * 1000) if isinstance(when, (int, float)) else 0
