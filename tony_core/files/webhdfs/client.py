"""The WebHDFS client: a method for each operation on a path. Any thread may call them."""

from __future__ import annotations

import base64
import errno
import io
import secrets
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, TypeVar

from .connection import ConnectionBroken, Negotiation, split_url
from .datanodes import DATA_NODES_TRIED, DataNodeLost, FileUpload, fetch
from .namenodes import (
    NameNodeResponse,
    NameNodes,
    NameNodeUnreachable,
    RequestRefused,
    RetryLimits,
    Service,
)
from .responses import (
    NO_NODE,
    FileStatus,
    TokenRefused,
    parse_json,
    parse_listing,
    parse_status,
    translate_parse_errors,
    translate_remote_exception,
)

TEMPORARY = ".put-"
"""How the names of files begin that are still being written, or were when their writer died."""

_MOST_LISTED = 1 << 20  # names in a folder: HDFS's own limit, unless a site raises it
_LONGEST_CHECKSUM = 64 << 10
# What a NameNode says that has none of that name, or none at all by its configuration.
_NO_ATTRIBUTE = (
    "XAttrNotFoundException",
    "attributes provided was not found",
    "dfs.namenode.xattrs",
)

_T = TypeVar("_T")


class WebHdfs:
    """A file system, used as one user. Paths are absolute, without a scheme.

    ``negotiate`` makes the authentication of each connection to a host, which says who we are;
    ``obtain`` gives the delegation token (as WebHDFS writes it) to send in place of the name, for
    each call, and after a refusal once more.
    ``real_user`` acts for ``user``; with ``negotiate`` it is the owner of the login.
    ``limit_s`` says how long a caller that only looks waits; None: no less than others.
    """

    def __init__(
        self,
        service: Service,
        user: str,
        *,
        limits: RetryLimits = RetryLimits(),
        limit_s: Callable[[], Optional[float]] = lambda: None,
        negotiate: Optional[Callable[[str], Negotiation]] = None,
        obtain: Optional[Callable[[], str]] = None,
        real_user: str = "",
    ) -> None:
        self.service = service
        self.user = user
        self._by_name = negotiate is None and obtain is None

        def query() -> Dict[str, str]:
            if obtain is not None:
                return {"delegation": obtain()}
            # With a login the server knows us by a name that its own rules make.
            found = {} if negotiate is not None else {"user.name": real_user or user}
            return {**found, "doas": user} if real_user else found

        self.identity = query  # what a call says of us
        self._obtain = obtain
        self._limit_s = limit_s
        self._names = NameNodes(service, query, limits, limit_s, negotiate)

    def close(self) -> None:
        """Give back the kept connections; the next call takes new ones."""
        self._names.close()

    # ------------------------------------------------------------------ folders and names

    def status(self, path: str) -> FileStatus:
        """The status of a path; raises FileNotFoundError."""
        response = self._json("GET", path, "GETFILESTATUS")
        with translate_parse_errors(path):
            return parse_status(response["FileStatus"])

    def exists(self, path: str) -> bool:
        """Whether there is something."""
        try:
            self.status(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> List[FileStatus]:
        """The entries of a folder, by name; raises NotADirectoryError for a file."""
        found: Dict[str, FileStatus] = {}
        after = ""
        while True:
            more = {"startAfter": after} if after else {}
            try:
                response = self._json("GET", path, "LISTSTATUS_BATCH", **more)
            except OSError as error:
                if after or "LISTSTATUS_BATCH" not in str(error):
                    raise
                response = self._json("GET", path, "LISTSTATUS")  # Hadoop before 2.8
            with translate_parse_errors(path):
                page = parse_listing(response)
                for one in page.entries:
                    after = one.name
                    if not after:
                        why = "this is a file: what is listed has no name"
                        raise NotADirectoryError(errno.ENOTDIR, why, path)
                    if after in found:
                        raise ValueError(f"the name {after!r} again")
                    found[after] = one
                if len(found) > _MOST_LISTED:
                    raise ValueError(f"more than {_MOST_LISTED} names")
                if page.complete:
                    return [found[name] for name in sorted(found)]

    def mkdirs(self, path: str, mode: Optional[int] = None) -> None:
        """Make a folder and those above it; one that is there stays as it is."""
        self._call("PUT", path, "MKDIRS", **_permission(mode))

    def delete(self, path: str) -> bool:
        """Remove a file, or a folder with all it holds; False when there was nothing."""
        reply = self._call("DELETE", path, "DELETE", recursive="true")
        # After a lost answer "nothing there" may be our own doing.
        with translate_parse_errors(path):
            return bool(parse_json(reply.body)["boolean"]) or reply.unsure

    def chmod(self, path: str, mode: int) -> None:
        """Set permission bits."""
        self._call("PUT", path, "SETPERMISSION", **_permission(mode))

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Move a file or folder in one step. ``overwrite`` replaces a file, or an empty folder."""
        # With an option, even none, a folder is not moved into one that is there.
        option = "OVERWRITE" if overwrite else "NONE"
        try:
            self._names.call("PUT", source, "RENAME", destination=target, renameoptions=option)
        except RequestRefused as error:
            found = translate_remote_exception(
                error.refusal, target, self.user, by_name=self._by_name
            )
            if not isinstance(found, FileNotFoundError):
                raise found from None
            if error.unsure and self.exists(target) and not self.exists(source):
                return  # it was done the first time, and only the answer was lost
            missing = target if "destination" in error.refusal.text else source
            raise translate_remote_exception(
                error.refusal, missing, self.user, by_name=self._by_name
            ) from None
        except NameNodeUnreachable as error:
            raise self._unreachable(error, target) from None

    # ------------------------------------------------------------------ content

    def open(self, path: str, offset: int = 0, *, shown: str = "") -> io.BufferedIOBase:
        """A stream of a file's bytes from ``offset`` on, empty at or behind its end.

        ``shown`` is what errors name in place of the path.
        """

        def read(without: Dict[str, str]) -> io.BufferedIOBase:
            url = self._redirect("GET", path, "OPEN", offset=str(offset), **without)
            return self._fetch(url, shown or path)

        try:
            return self._on_some_node(path, "reading", read)
        except OSError as error:
            if offset and "out of the range" in str(error):
                return io.BytesIO()  # the file is no longer than that
            raise

    def create(self, path: str, send: Callable[[FileUpload], None]) -> None:
        """Write a file, and the folders above it; ``send`` may be called for several DataNodes."""
        options = {"overwrite": "true", "createparent": "true"}
        self._upload(path, lambda: path, send, options, repeatable=True)

    def write(
        self, path: str, send: Callable[[FileUpload], None], mode: int, *, repeatable: bool
    ) -> None:
        """Write a file in a folder that is there, atomically, replacing an older one.

        ``repeatable``: ``send`` can be called again, for another DataNode.
        """
        folder = path.rpartition("/")[0]
        options = {"overwrite": "false", "createparent": "false", **_permission(mode)}

        def name() -> str:
            return f"{folder}/{TEMPORARY}{secrets.token_hex(8)}"

        temporary = self._upload(path, name, send, options, repeatable)
        try:
            with _named(path, temporary):
                self.rename(temporary, path, overwrite=True)
        except BaseException:
            self.discard(temporary)
            raise

    def _upload(
        self,
        path: str,
        name: Callable[[], str],
        send: Callable[[FileUpload], None],
        options: Dict[str, str],
        repeatable: bool,
    ) -> str:
        """Send content to a file of that name, which is returned; errors are about ``path``."""

        def transfer(without: Dict[str, str]) -> str:
            made = name()
            with _named(path, made):
                url = self._redirect("PUT", made, "CREATE", **options, **without)
            upload = FileUpload(url, path, self.user, self.service.authorities)
            try:
                send(upload)
            except BaseException as error:
                upload.close()
                if upload.started:
                    self.discard(made)
                if isinstance(error, DataNodeLost) and upload.started and not repeatable:
                    raise error.as_error(path, "writing") from None
                if isinstance(error, TokenRefused) and upload.started and not repeatable:
                    raise PermissionError(error.errno, error.strerror, path) from None
                raise
            upload.close()
            return made

        return self._on_some_node(path, "writing", transfer)

    def discard(self, path: str) -> None:
        """Remove what is useless after a failure; another failure does not matter."""
        try:
            self.delete(path)
        except OSError:
            pass

    def checksum(self, path: str) -> str:
        """``ALGORITHM:HEX`` of a file, computed where its blocks are; equal only with equal
        block and checksum sizes, so for files of the same cluster."""

        def compute(without: Dict[str, str]) -> str:
            url = self._redirect("GET", path, "GETFILECHECKSUM", **without)
            with self._fetch(url, path) as stream, translate_parse_errors(path):
                found = parse_json(stream.read(_LONGEST_CHECKSUM))["FileChecksum"]
                return f"{found['algorithm']}:{found['bytes']}"

        return self._on_some_node(path, "a checksum", compute)

    # ------------------------------------------------------------------ attributes

    def set_attribute(self, path: str, name: str, data: bytes) -> None:
        """Keep a few kilobytes beside a file or folder, replacing what was there.

        The NameNode does it alone, in milliseconds, whereas a DataNode that closes a file often
        waits 0.4 s for the NameNode to hear of its block. ``OSError`` where a cluster has no
        extended attributes, or this is too much for one.
        """
        value = "0s" + base64.b64encode(data).decode()
        words = {"xattr.name": f"user.tony.{name}", "xattr.value": value}
        self._call("PUT", path, "SETXATTR", flag="CREATE,REPLACE", **words)

    def attribute(self, path: str, name: str) -> Optional[bytes]:
        """The value that :meth:`set_attribute` stored; None if there is none."""
        words = {"xattr.name": f"user.tony.{name}", "encoding": "BASE64"}
        try:
            found = self._json("GET", path, "GETXATTRS", **words)
        except FileNotFoundError:
            raise
        except OSError as error:
            if any(words in str(error) for words in _NO_ATTRIBUTE):
                return None
            raise
        with translate_parse_errors(path):
            return base64.b64decode(found["XAttrs"][0]["value"][2:])

    # ------------------------------------------------------------------ one call

    def _fetch(self, url: str, path: str) -> io.BufferedReader:
        return fetch(url, path, self.user, self._limit_s(), self.service.authorities)

    def _on_some_node(self, path: str, doing: str, attempt: Callable[[Dict[str, str]], _T]) -> _T:
        """Try the DataNode that a NameNode leads to; some others when that one is out of reach.

        A DataNode has the caller's token: where it refuses this as dead, a newer one is tried once.
        """
        excluded: List[str] = []
        lost: Optional[DataNodeLost] = None
        token, is_renewed = self._token(), False
        for _ in range(DATA_NODES_TRIED):
            more = {"excludedatanodes": ",".join(excluded)} if excluded else {}
            try:
                return attempt(more)
            except DataNodeLost as error:
                lost = error
                excluded += error.addresses()
            except TokenRefused:
                if is_renewed or self._token() == token:
                    raise
                is_renewed = True
            except OSError as error:
                # With all the others excluded, the reason is the one that was lost.
                if lost is None or not any(words in str(error) for words in NO_NODE):
                    raise
                break
        assert lost is not None
        raise lost.as_error(path, doing)

    def _token(self) -> str:
        return "" if self._obtain is None else self._obtain()

    def _redirect(self, method: str, path: str, operation: str, **more: str) -> str:
        """Where a NameNode sends us."""
        reply = self._call(method, path, operation, **more)
        if not reply.location:
            why = "what answered named no DataNode: gateways (HttpFS) are not supported"
            raise OSError(errno.EPROTO, why, path)
        try:
            split_url(reply.location, from_tls=self.service.tls)
        except ConnectionBroken as error:
            why = f"HDFS answered a redirect to {error.strerror}"
            raise OSError(errno.EPROTO, why, path) from None
        return reply.location

    def _json(self, method: str, path: str, operation: str, **more: str) -> Any:
        reply = self._call(method, path, operation, **more)
        with translate_parse_errors(path):
            return parse_json(reply.body)

    def _call(self, method: str, path: str, operation: str, **more: str) -> NameNodeResponse:
        try:
            return self._names.call(method, path, operation, **more)
        except RequestRefused as error:
            raise translate_remote_exception(
                error.refusal, path, self.user, by_name=self._by_name
            ) from None
        except NameNodeUnreachable as error:
            raise self._unreachable(error, path) from None

    def _unreachable(self, error: NameNodeUnreachable, path: str) -> OSError:
        note = f". {self.service.note}" if self.service.note else ""
        return OSError(errno.EHOSTUNREACH, f"{error}{note}", path)


def _permission(mode: Optional[int]) -> Dict[str, str]:
    return {} if mode is None else {"permission": f"{mode:o}"}


@contextmanager
def _named(path: str, temporary: str) -> Iterator[None]:
    """Name in an error the file that is meant, and not its temporary name."""
    try:
        yield
    except OSError as error:
        if error.filename == temporary:
            error.filename = path
        raise
