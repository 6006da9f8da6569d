"""Which file system answers for a location, by its scheme.

The table names modules, not classes: importing this module loads none of them, because a
node that only copies local files should not pay for the web client.

What is registered holds for the process, since most serve one site as one user. A process that
serves several (Airflow's triggerer) gives each a :class:`SeparateRegistry`.
"""

from __future__ import annotations

import errno
import importlib
from contextvars import ContextVar
from typing import Callable, Dict, List, Tuple

from tony_core.files.location import OBJECT_STORES, masked, scheme_of
from tony_core.files.port import FileSystem, UnsupportedLocation

_BUILT_IN: Dict[str, Tuple[str, str]] = {
    "": ("tony_core.files.local", "LocalFileSystem"),
    "file": ("tony_core.files.local", "LocalFileSystem"),
    "http": ("tony_core.files.http", "HttpFileSystem"),
    "https": ("tony_core.files.http", "HttpFileSystem"),
    "hdfs": ("tony_core.files.hdfs", "of_site"),
    "webhdfs": ("tony_core.files.hdfs", "by_address"),
    "swebhdfs": ("tony_core.files.hdfs", "by_address"),
    **dict.fromkeys(OBJECT_STORES, ("tony_core.files.objects", "ObjectFileSystem")),
}

# Schemes that users of a cluster will write: the answer says what to do instead.
_KNOWN_BUT_ABSENT = {
    "viewfs": "mount tables are not read: write the hdfs:// location that it leads to",
    "har": "Hadoop's archives are not read: unpack it, or write an hdfs:// location",
    "ofs": "no Ozone client is part of this installation",
    "o3fs": "no Ozone client is part of this installation",
    "maprfs": "no MapR client is part of this installation",
}


class _Table:
    def __init__(self) -> None:
        self.added: Dict[str, Callable[[], FileSystem]] = {}
        self.open: Dict[str, FileSystem] = {}

    def forget(self) -> None:
        self.added.clear()
        while self.open:
            self.open.popitem()[1].close()


_shared = _Table()
_current: ContextVar[_Table] = ContextVar("files", default=_shared)


class SeparateRegistry:
    """File systems of one caller's own: ``with registry:`` register, find and open them here.

    For one caller at a time. A thread that is started inside is outside, unless it takes the
    context along.
    """

    def __init__(self) -> None:
        self._table = _Table()
        self._outside = _shared

    def __enter__(self) -> None:
        self._outside = _current.get()
        _current.set(self._table)

    def __exit__(self, *error: object) -> None:
        _current.set(self._outside)

    def close(self) -> None:
        """Close what was opened inside."""
        self._table.forget()


def register(scheme: str, factory: Callable[[], FileSystem]) -> None:
    """Let ``factory`` make the file system of a scheme, in this process, in place of an older one.

    One that is equal to the older changes nothing: what is open stays open, for others use it.
    """
    table = _current.get()
    if table.added.get(scheme.lower()) == factory:
        return
    table.added[scheme.lower()] = factory
    older = table.open.pop(scheme.lower(), None)
    if older is not None:
        older.close()


def forget() -> None:
    """Forget what was registered and close what is open."""
    _current.get().forget()


def schemes() -> List[str]:
    """The schemes that can be used, for messages."""
    return sorted({*_BUILT_IN, *_current.get().added} - {""})


def filesystem(location: str) -> FileSystem:
    """The file system of a path or URL; :class:`UnsupportedLocation` when there is none."""
    scheme = scheme_of(location)
    table = _current.get()
    found = table.open.get(scheme)
    if found is not None:
        return found
    if scheme in table.added:
        found = table.added[scheme]()
    elif scheme in _BUILT_IN:
        module, name = _BUILT_IN[scheme]
        found = getattr(importlib.import_module(module), name)()
    else:
        why = _KNOWN_BUT_ABSENT.get(scheme, f"nothing here knows {scheme}:// locations")
        known = ", ".join(f"{known}://" for known in schemes())
        raise UnsupportedLocation(
            errno.EPROTONOSUPPORT, f"{why}; use a local path or one of {known}", masked(location)
        )
    assert found is not None
    table.open[scheme] = found
    return found
