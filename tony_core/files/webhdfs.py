"""HDFS by its HTTP interface: ``hdfs``, ``webhdfs`` and ``swebhdfs`` locations.

Theory of operation
===================

A NameNode is asked over a kept connection (``webhdfs_names``), and answers at once, or leads to
a DataNode, which sends or takes the bytes (``webhdfs_streams``). A file is written under a
hidden name of its own in the same folder (``.put-...``) and renamed over its target, which
HDFS does atomically, so that a reader sees the old file or the new one. A DataNode that is out
of reach is excluded, and the NameNode asked for another one, while nothing was sent.

Locations are URLs, their paths percent-encoded where need be. ``hdfs:///x`` is on the file
system of ``fs.defaultFS``, as is a plain ``/x``, in which nothing is encoded. An authority is a
nameservice of the site's configuration, or a NameNode: for ``hdfs`` by its RPC port, for the
others by its HTTP port.

Why our own
===========

On the nodes there is only the standard library, and the same code serves both sides. The
clients that exist need a JVM (libhdfs, and so pyarrow), or packages on the nodes, and most know
one address of one NameNode where a site has a pair. docs/hdfs.md tells more.
"""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import posixpath
import secrets
import threading
from contextlib import contextmanager
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, NoReturn, Optional, Tuple, TypeVar
from urllib.parse import unquote

from tony_core.dataclass import dataclass
from tony_core.files.location import join, masked, scheme_of
from tony_core.files.port import FileSystem, Stat, UnsupportedLocation
from tony_core.files.webhdfs_errors import refused, unreachable
from tony_core.files.webhdfs_http import Broken, split
from tony_core.files.webhdfs_names import PATIENCE_S, NameNodes, Refused, Reply
from tony_core.files.webhdfs_streams import DATA_NODES_TRIED, LostNode, Upload, fetch, gone
from tony_core.hadoop.errors import ConfigurationError, Unreachable
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name

TEMPORARY = ".put-"
"""How the names of files begin that are still being written, or were when their writer died."""

_MOST_LISTED = 1 << 20  # names in a folder: HDFS's own limit, unless a site raises it
_LONGEST_CHECKSUM = 64 << 10
_NONE_LEFT = ("Failed to find datanode", "No active nodes contain this block")

_T = TypeVar("_T")


@dataclass(frozen=True)
class Summary:
    """What a folder holds, with all that is below it."""

    folders: int
    files: int
    size: int  # bytes in the files
    space: int  # bytes on disks: with every replica
    file_quota: int  # names that there may be; -1: no limit
    space_quota: int


# What a NameNode says that has none of that name, or none at all by its configuration.
_NO_NOTE = ("XAttrNotFoundException", "attributes provided was not found", "dfs.namenode.xattrs")


class WebHdfsFileSystem(FileSystem):
    """All file systems that one site's configuration knows, as one user. Any thread may use it.

    ``delegation`` is a delegation token (as WebHDFS writes it) to send in place of the name.
    """

    scheme = "hdfs"

    def __init__(
        self,
        conf: SiteConfiguration,
        user: str,
        *,
        delegation: str = "",
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.user = user
        self._conf = conf
        self._identity = ("delegation", delegation) if delegation else ("user.name", user)
        self._patience_s = patience_s
        self._known: Dict[str, NameNodes] = {}
        self._lock = threading.Lock()
        if not delegation:
            endpoints.refuse_kerberos(conf)

    def close(self) -> None:
        """Give back the kept connections; the next call takes new ones."""
        for names in list(self._known.values()):
            names.close()

    # ------------------------------------------------------------------ the port

    def stat(self, location: str) -> Stat:
        found = self._json("GET", location, "GETFILESTATUS")
        with _understood(location):
            return _stat(location, found["FileStatus"])

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        if offset < 0:
            raise ValueError(f"{masked(location)}: nothing lies before the file's first byte")

        def read(without: Dict[str, str]) -> BinaryIO:
            url = self._lead("GET", location, "OPEN", offset=str(offset), **without)
            return fetch(url, location, self.user)

        try:
            return self._on_some_node(location, "reading", read)
        except OSError as error:
            if offset and "out of the range" in str(error):
                return io.BytesIO()  # the file is no longer than that
            raise

    def list(self, location: str) -> List[Stat]:
        found: Dict[str, Stat] = {}
        after = ""
        while True:
            more = {"startAfter": after} if after else {}
            try:
                page = self._json("GET", location, "LISTSTATUS_BATCH", **more)
            except OSError as error:
                if after or "LISTSTATUS_BATCH" not in str(error):
                    raise
                page = self._json("GET", location, "LISTSTATUS")  # a server of old
            with _understood(location):
                listing = page.get("DirectoryListing", {})
                listed = (listing.get("partialListing") or page)["FileStatuses"]["FileStatus"]
                for one in listed:
                    after = _name(one["pathSuffix"])
                    if not after:
                        raise NotADirectoryError(errno.ENOTDIR, "this is a file", masked(location))
                    if after in found:
                        raise ValueError(f"the name {after!r} again")
                    found[after] = _stat(join(location, after), one)
                if len(found) > _MOST_LISTED:
                    raise ValueError(f"more than {_MOST_LISTED} names")
                if not listed or not listing.get("remainingEntries"):
                    return sorted(found.values(), key=lambda one: one.location)

    def write(
        self, location: str, produce: Callable[[BinaryIO], object], mode: int = 0o644
    ) -> None:
        self._write(location, lambda upload: upload.send_stream(produce), mode, again=False)

    def put(self, location: str, data: bytes, mode: int = 0o644) -> None:
        self._write(location, lambda upload: upload.send_bytes(data), mode, again=True)

    def upload(self, source: str, location: str, mode: int = 0o644) -> None:
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._write(
                location, lambda upload: upload.send_file(file, size, source), mode, again=True
            )

    def mkdir(self, location: str, mode: int = 0o755) -> None:
        self._call("PUT", location, "MKDIRS", permission=f"{mode:o}")

    def rename(self, source: str, target: str) -> None:
        old, new = self._place(source), self._place(target)
        if old[0] is not new[0]:
            raise OSError(errno.EXDEV, "on another file system", masked(target))
        if old[1] == new[1]:
            self.stat(source)
            return
        try:
            self._rename(source, target, "NONE")
        except (FileExistsError, IsADirectoryError) as error:
            if self.stat(source).is_dir:
                raise FileExistsError(errno.EEXIST, "there already", masked(target)) from None
            if isinstance(error, IsADirectoryError):
                raise
            self._rename(source, target, "OVERWRITE")

    def delete(self, location: str) -> bool:
        reply = self._call("DELETE", location, "DELETE", recursive="true")
        # After a lost answer "nothing there" may be our own doing.
        with _understood(location):
            return bool(_loads(reply.body)["boolean"]) or reply.unsure

    def chmod(self, location: str, mode: int) -> None:
        self._call("PUT", location, "SETPERMISSION", permission=f"{mode:o}")

    # ------------------------------------------------------------------ and more

    def checksum(self, location: str) -> str:
        """``ALGORITHM:HEX`` of a file, computed where its blocks are; equal only with equal
        block and checksum sizes, so for files of the same cluster."""

        def compute(without: Dict[str, str]) -> str:
            url = self._lead("GET", location, "GETFILECHECKSUM", **without)
            with fetch(url, location, self.user) as stream, _understood(location):
                found = _loads(stream.read(_LONGEST_CHECKSUM))["FileChecksum"]
                return f"{found['algorithm']}:{found['bytes']}"

        return self._on_some_node(location, "a checksum", compute)

    def note(self, location: str, name: str, data: bytes) -> None:
        """Keep a few kilobytes beside a file or folder, replacing what was there.

        The NameNode does it alone, in milliseconds, whereas a DataNode that closes a file often
        waits 0.4 s for the NameNode to hear of its block. ``OSError`` where a cluster has no
        extended attributes, or this is too much for one.
        """
        value = "0s" + base64.b64encode(data).decode()
        words = {"xattr.name": f"user.tony.{name}", "xattr.value": value}
        self._call("PUT", location, "SETXATTR", flag="CREATE,REPLACE", **words)

    def noted(self, location: str, name: str) -> Optional[bytes]:
        """What :meth:`note` has kept there; None if nothing."""
        words = {"xattr.name": f"user.tony.{name}", "encoding": "BASE64"}
        try:
            found = self._json("GET", location, "GETXATTRS", **words)
        except FileNotFoundError:
            raise
        except OSError as error:
            if any(words in str(error) for words in _NO_NOTE):
                return None
            raise
        with _understood(location):
            return base64.b64decode(found["XAttrs"][0]["value"][2:])

    def summary(self, location: str) -> Summary:
        """How much a folder holds."""
        answer = self._json("GET", location, "GETCONTENTSUMMARY")
        with _understood(location):
            found = answer["ContentSummary"]
            return Summary(
                folders=int(found["directoryCount"]),
                files=int(found["fileCount"]),
                size=int(found["length"]),
                space=int(found["spaceConsumed"]),
                file_quota=int(found["quota"]),
                space_quota=int(found["spaceQuota"]),
            )

    # ------------------------------------------------------------------ writing

    def _write(self, location: str, send: Callable[[Upload], None], mode: int, again: bool) -> None:
        """``again``: what is sent can be sent a second time."""
        folder, _, name = location.rstrip("/").rpartition("/")
        if not name or not self._place(location)[1].strip("/"):
            raise IsADirectoryError(errno.EISDIR, "this is a folder", masked(location))

        def transfer(without: Dict[str, str]) -> str:
            temporary = f"{folder}/{TEMPORARY}{secrets.token_hex(8)}"
            url = self._lead(
                "PUT",
                temporary,
                "CREATE",
                permission=f"{mode:o}",
                createparent="false",
                overwrite="false",
                **without,
            )
            upload = Upload(url, location, self.user)
            try:
                send(upload)
            except BaseException as error:
                upload.close()
                if upload.begun:
                    self._remove(temporary)
                if isinstance(error, LostNode) and upload.begun and not again:
                    raise gone(error, location, "writing") from None
                raise
            upload.close()
            return temporary

        temporary = self._on_some_node(location, "writing", transfer)
        try:
            self._rename(temporary, location, "OVERWRITE")
        except BaseException:
            self._remove(temporary)
            raise

    def _remove(self, temporary: str) -> None:
        try:
            self.delete(temporary)
        except OSError:
            pass  # something else is wrong already, and is what the caller hears

    def _rename(self, source: str, target: str, how: str) -> None:
        (names, path), (_, new) = self._place(source), self._place(target)
        try:
            names.call("PUT", path, "RENAME", destination=new, renameoptions=how)
        except Refused as error:
            found = refused(error.error, target, self.user)
            if not isinstance(found, FileNotFoundError):
                raise found from None
            if error.unsure and self.exists(target) and not self.exists(source):
                return  # it was done the first time, and only the answer was lost
            missing = target if "destination" in error.error.text else source
            raise refused(error.error, missing, self.user) from None
        except Unreachable as error:
            raise unreachable(error, target, names.web.note) from None

    # ------------------------------------------------------------------ asking

    def _on_some_node(
        self, location: str, doing: str, attempt: Callable[[Dict[str, str]], _T]
    ) -> _T:
        """Where a NameNode leads to; elsewhere, some times, when that node is out of reach."""
        without: List[str] = []
        lost: Optional[LostNode] = None
        for _ in range(DATA_NODES_TRIED):
            more = {"excludedatanodes": ",".join(without)} if without else {}
            try:
                return attempt(more)
            except LostNode as error:
                lost = error
                without += error.addresses()
            except OSError as error:
                # With all the others excluded, the reason is the one that was lost.
                if lost is None or not any(words in str(error) for words in _NONE_LEFT):
                    raise
                break
        assert lost is not None
        raise gone(lost, location, doing)

    def _lead(self, method: str, location: str, operation: str, **more: str) -> str:
        """Where a NameNode sends us."""
        reply = self._call(method, location, operation, **more)
        if not reply.location:
            why = "what answered named no DataNode: gateways (HttpFS) are not supported"
            raise OSError(errno.EPROTO, why, masked(location))
        try:
            split(reply.location, from_tls=self._place(location)[0].web.tls)
        except Broken as error:
            raise OSError(
                errno.EPROTO, f"HDFS answered {error.strerror}", masked(location)
            ) from None
        return reply.location

    def _json(self, method: str, location: str, operation: str, **more: str) -> Any:
        reply = self._call(method, location, operation, **more)
        with _understood(location):
            return _loads(reply.body)

    def _call(self, method: str, location: str, operation: str, **more: str) -> Reply:
        names, path = self._place(location)
        try:
            return names.call(method, path, operation, **more)
        except Refused as error:
            raise refused(error.error, location, self.user) from None
        except Unreachable as error:
            raise unreachable(error, location, names.web.note) from None

    # ------------------------------------------------------------------ locations

    def _place(self, location: str) -> Tuple[NameNodes, str]:
        """The NameNodes of a location, and its path there."""
        base, path = _taken_apart(location)
        with self._lock:
            names = self._known.get(base)
            if names is None:
                try:
                    service = endpoints.name_service(self._conf, base or None)
                except ConfigurationError as error:
                    raise UnsupportedLocation(
                        errno.EPROTONOSUPPORT, str(error), masked(location)
                    ) from None
                # Of several ways to write one file system: rename has to know that it is one.
                same = [one for one in self._known.values() if one.web.urls == service.web.urls]
                names = (
                    same[0] if same else NameNodes(service.web, self._identity, self._patience_s)
                )
                self._known[base] = names
        return names, path


def of_site() -> WebHdfsFileSystem:
    """By the environment: HADOOP_CONF_DIR, HADOOP_USER_NAME."""
    try:
        conf = SiteConfiguration.load()
        if not conf.files:
            raise ConfigurationError(
                "HDFS is reached by the cluster's configuration, and there is none: set "
                f"HADOOP_CONF_DIR to the folder of core-site.xml. {conf.where()}"
            )
        return WebHdfsFileSystem(conf, user_name())
    except ConfigurationError as error:
        raise UnsupportedLocation(errno.EPROTONOSUPPORT, str(error), "hdfs://") from None


def by_address() -> WebHdfsFileSystem:
    """For locations that name the server themselves; a site's configuration is used if there."""
    try:
        return WebHdfsFileSystem(SiteConfiguration.load(), user_name())
    except ConfigurationError as error:
        raise UnsupportedLocation(errno.EPROTONOSUPPORT, str(error), "webhdfs://") from None


def _taken_apart(location: str) -> Tuple[str, str]:
    """Scheme and authority (empty: that of ``fs.defaultFS``), and the path."""
    scheme = scheme_of(location)
    if scheme not in ("", "hdfs", "webhdfs", "swebhdfs"):
        _invalid(location, "this is no location on HDFS")
    authority, path = "", location
    if scheme:
        if "?" in location or "#" in location:
            _invalid(location, "a file's URL has neither ? nor #: in a name, write %3F and %23")
        authority, _, path = location[len(scheme) + 3 :].partition("/")
        path = "/" + unquote(path)
    if not path.startswith("/"):
        _invalid(location, "a path on HDFS begins with /")
    path = "/" + posixpath.normpath(path).lstrip("/")
    if "\x00" in path:
        _invalid(location, "a name cannot hold a zero byte")
    if any("\ud800" <= letter <= "\udfff" for letter in path):
        _invalid(location, "names on HDFS are UTF-8")
    base = f"{scheme}://{authority.rpartition('@')[2]}" if authority else ""
    return base, path


def _invalid(location: str, why: str) -> NoReturn:
    raise OSError(errno.EINVAL, why, masked(location))


def _loads(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None


@contextmanager
def _understood(location: str) -> Iterator[None]:
    """What no WebHDFS answers becomes one error."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        why = f"an answer that is not WebHDFS's: {str(error) or type(error).__name__}"
        raise OSError(errno.EPROTO, why, masked(location)) from None


def _name(name: Any) -> str:
    """As a listing has it: one segment of a path, or none, of a file that was listed."""
    if not isinstance(name, str) or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file or folder")
    name.encode()  # ValueError for half a surrogate
    return name


def _stat(location: str, found: Dict[str, Any]) -> Stat:
    mode: Optional[int] = None
    if "permission" in found:
        mode = int(found["permission"], 8)
    size = int(found["length"])
    if size < 0:
        raise ValueError(f"a length of {size}")
    return Stat(location, found["type"] == "DIRECTORY", size, int(found["modificationTime"]), mode)
