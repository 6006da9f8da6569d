"""The file system of ``hdfs``, ``webhdfs`` and ``swebhdfs`` locations, by WebHDFS.

Locations are URLs, their paths percent-encoded where need be. ``hdfs:///x`` is on the file
system of ``fs.defaultFS``, as is a plain ``/x``, in which nothing is encoded. An authority is a
nameservice of the site's configuration, or a NameNode: for ``hdfs`` by its RPC port, for the
others by its HTTP port. The web server of one of the site's own NameNodes is that file system.

A file is written under a hidden name of its own in the same folder (``.put-...``) and renamed over
its target, which HDFS does atomically, so that a reader sees the old file or the new one.

Why our own client (:mod:`tony_core.files.webhdfs`): on the nodes there is only the standard
library, and the same code serves both sides. The clients that exist need a JVM (libhdfs, and so
pyarrow), or packages on the nodes, and most know one address of one NameNode where a site has a
pair. docs/hdfs.md has more.
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import (
    TYPE_CHECKING,
    BinaryIO,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Tuple,
    cast,
)
from urllib.parse import unquote

from tony_core.files.location import join, masked, scheme_of
from tony_core.files.port import FileSystem, Stat, UnsupportedLocation, wait_limit
from tony_core.files.webhdfs.client import WebHdfs
from tony_core.files.webhdfs.connection import Address, ConnectionBroken, Negotiation
from tony_core.files.webhdfs.datanodes import FileUpload
from tony_core.files.webhdfs.namenodes import RETRY_S, RetryLimits, Service
from tony_core.files.webhdfs.responses import FileStatus
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.errors import (
    AuthenticationError,
    ConfigurationError,
    HadoopError,
    Unreachable,
)
from tony_core.hadoop.identity import (
    ClusterIdentity,
    check_name_node,
    cluster_identity,
    hdfs_token_service,
)
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.certificates import read_authorities
from tony_core.hadoop.site.configuration import SiteConfiguration

if TYPE_CHECKING:
    from tony_core.hadoop.kerberos.login import Login

TOKEN_S = 3600.0
"""How long a token is used that a login has obtained; NameNodes let them live for a day."""


class WebHdfsFileSystem(FileSystem):
    """All file systems that one site's configuration knows, as one user. Any thread may use it."""

    scheme = "hdfs"

    def __init__(
        self,
        conf: SiteConfiguration,
        identity: ClusterIdentity,
        *,
        patience_s: float = RETRY_S,
    ) -> None:
        self.user = identity.user
        self._conf = conf
        self._identity = identity
        self._patience = RetryLimits(patience_s)
        self._known: Dict[str, WebHdfs] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        for hdfs in list(self._known.values()):
            hdfs.close()

    def renew_tokens(self, tokens: Credentials) -> None:
        """Use these tokens from now on, in calls that have begun as well. Any thread."""
        self._identity = self._identity._replace(tokens=tokens)

    # ------------------------------------------------------------------ the port

    def stat(self, location: str) -> Stat:
        with self._on(location) as (hdfs, path):
            return _stat(location, hdfs.status(path))

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        if offset < 0:
            raise ValueError(f"{masked(location)}: nothing lies before the file's first byte")
        with self._on(location) as (hdfs, path):
            return cast(BinaryIO, hdfs.open(path, offset, shown=masked(location)))

    def list(self, location: str) -> List[Stat]:
        with self._on(location) as (hdfs, path):
            return [_stat(join(location, one.name), one) for one in hdfs.list(path)]

    def write(
        self, location: str, produce: Callable[[BinaryIO], object], mode: int = 0o644
    ) -> None:
        self._write(location, lambda upload: upload.send_stream(produce), mode, repeatable=False)

    def put(self, location: str, data: bytes, mode: int = 0o644) -> None:
        self._write(location, lambda upload: upload.send_bytes(data), mode, repeatable=True)

    def upload(self, source: str, location: str, mode: int = 0o644) -> None:
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._write(
                location, lambda upload: upload.send_file(file, size, source), mode, repeatable=True
            )

    def mkdir(self, location: str, mode: int = 0o755) -> None:
        with self._on(location) as (hdfs, path):
            hdfs.mkdirs(path, mode)

    def rename(self, source: str, target: str) -> None:
        hdfs, old = self._place(source)
        other, new = self._place(target)
        if hdfs is not other:
            raise OSError(errno.EXDEV, "on another file system", masked(target))
        if old == new:
            self.stat(source)
            return
        with _locations({old: source, new: target}):
            try:
                hdfs.rename(old, new)
            except (FileExistsError, IsADirectoryError) as error:
                if hdfs.status(old).is_dir:
                    raise FileExistsError(errno.EEXIST, "there already", new) from None
                if isinstance(error, IsADirectoryError):
                    raise
                hdfs.rename(old, new, overwrite=True)

    def delete(self, location: str) -> bool:
        with self._on(location) as (hdfs, path):
            return hdfs.delete(path)

    def chmod(self, location: str, mode: int) -> None:
        with self._on(location) as (hdfs, path):
            hdfs.chmod(path, mode)

    # ------------------------------------------------------------------ and more

    def checksum(self, location: str) -> str:
        """``ALGORITHM:HEX`` of a file; see :meth:`WebHdfs.checksum`."""
        with self._on(location) as (hdfs, path):
            return hdfs.checksum(path)

    def note(self, location: str, name: str, data: bytes) -> None:
        """Keep a few kilobytes beside a file or folder; see :meth:`WebHdfs.set_attribute`."""
        with self._on(location) as (hdfs, path):
            hdfs.set_attribute(path, name, data)

    def noted(self, location: str, name: str) -> Optional[bytes]:
        """What :meth:`note` has kept there; None if nothing."""
        with self._on(location) as (hdfs, path):
            return hdfs.attribute(path, name)

    # ------------------------------------------------------------------ writing

    def _write(
        self, location: str, send: Callable[[FileUpload], None], mode: int, *, repeatable: bool
    ) -> None:
        with self._on(location) as (hdfs, path):
            if path == "/":
                raise IsADirectoryError(errno.EISDIR, "this is a folder", path)
            hdfs.write(path, send, mode, repeatable=repeatable)

    # ------------------------------------------------------------------ locations

    @contextmanager
    def _on(self, location: str) -> Iterator[Tuple[WebHdfs, str]]:
        """The file system of a location and the path there; errors name the location."""
        hdfs, path = self._place(location)
        with _locations({path: location}):
            yield hdfs, path

    def _place(self, location: str) -> Tuple[WebHdfs, str]:
        base, path = _split_location(location)
        with self._lock:
            hdfs = self._known.get(base)
            if hdfs is None:
                try:
                    hdfs = self._find(base)
                except ConfigurationError as error:
                    raise UnsupportedLocation(
                        errno.EPROTONOSUPPORT, str(error), masked(location)
                    ) from None
                self._known[base] = hdfs
        return hdfs, path

    def _find(self, base: str) -> WebHdfs:
        """The file system of a URL; one object for all the ways to write it."""
        found = endpoints.name_service(self._conf, base or None)
        if self._identity.is_secure:
            check_name_node(found)
        web = found.web
        addresses = tuple(Address(one.host, one.port) for one in web.addresses)
        # Rename has to know that two locations are on one file system.
        for known in self._known.values():
            if (known.service.addresses, known.service.tls) == (addresses, web.tls):
                return known
        authorities = read_authorities(self._conf) if web.tls else ""
        service = Service(addresses, web.tls, web.service, web.note, authorities)
        return self._connect(service, found)

    def _connect(self, service: Service, found: endpoints.NameService) -> WebHdfs:
        negotiate: Optional[Callable[[str], Negotiation]] = None
        obtain: Optional[Callable[[], str]] = None
        login, tokens = self._identity.login, self._identity.tokens
        negotiates = endpoints.web_authentication(self._conf) == "kerberos"
        if login is not None and not negotiates:
            obtain = _ObtainedToken(self._conf, self._identity, found).text
        elif login is not None:
            negotiate = partial(_Handshake, login)
            if found.name not in endpoints.own_names(self._conf):
                negotiate = _ForeignNameNode(self._conf, self._identity, found, negotiate)
        elif tokens is not None:
            obtain = partial(self._token_text, hdfs_token_service(self._conf, found), found.name)
            obtain()  # raises where there is no token
        return WebHdfs(
            service,
            self.user,
            limits=self._patience,
            limit_s=wait_limit.get,
            negotiate=negotiate,
            obtain=obtain,
            real_user=self._identity.real_user,
        )

    def _token_text(self, service: str, name: str) -> str:
        return url_string(self._identity.token(service, name))


class _ObtainedToken:
    """A login's own delegation token, by the NameNode's RPC, for web servers without SPNEGO."""

    def __init__(
        self, conf: SiteConfiguration, identity: ClusterIdentity, found: endpoints.NameService
    ) -> None:
        self._conf = conf
        self._identity = identity
        self._found = found
        self._lock = threading.Lock()
        self._text = ""
        self._until = 0.0

    def text(self) -> str:
        """The token as WebHDFS takes it; raises :class:`HadoopError`."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._text = self._obtain()
                self._until = time.monotonic() + TOKEN_S
            return self._text

    def _obtain(self) -> str:
        from tony_core.hadoop.hdfs.namenode_client import obtain_token

        token = obtain_token(self._conf, self._identity, self._found, self._identity.user)
        return url_string(token)


class _Handshake:
    """A connection's SPNEGO. To the client of WebHDFS a stranger is a server that is out of reach:
    the other one of a pair may serve."""

    def __init__(self, login: Login, host: str) -> None:
        from tony_core.hadoop.kerberos.spnego import Negotiation

        self._negotiation = Negotiation(login, host)

    def fields(self) -> Dict[str, str]:
        return self._negotiation.fields()

    def check(self, status: int, headers: Mapping[str, str]) -> bool:
        try:
            return self._negotiation.check(status, headers)
        except AuthenticationError as error:
            raise ConnectionBroken(str(error)) from None


class _ForeignNameNode:
    """The handshakes with the web server of a NameNode that a job names and the site does not.

    Any process of that host may listen at the web server's port, and could pass the handshake on.
    So the NameNode proves itself first, by RPC, as a principal that only a NameNode has.
    """

    def __init__(
        self,
        conf: SiteConfiguration,
        identity: ClusterIdentity,
        found: endpoints.NameService,
        begin: Callable[[str], Negotiation],
    ) -> None:
        self._ask = partial(_ask_name_node, conf, identity, found)
        self._begin = begin
        self._is_proved = False

    def __call__(self, host: str) -> Negotiation:
        if not self._is_proved:
            self._ask()
            self._is_proved = True
        return self._begin(host)


def _ask_name_node(
    conf: SiteConfiguration, identity: ClusterIdentity, found: endpoints.NameService
) -> None:
    from tony_core.hadoop.hdfs.namenode_client import ask_name_node

    ask_name_node(conf, identity, found)


@contextmanager
def _locations(paths: Dict[str, str]) -> Iterator[None]:
    """Name in an error the location that its path is of."""
    try:
        yield
    except OSError as error:
        if error.filename in paths:
            error.filename = masked(paths[error.filename])
        raise
    except HadoopError as error:  # no login, or a server that has not proved who it is
        code = errno.EHOSTUNREACH if isinstance(error, Unreachable) else errno.EACCES
        raise OSError(code, str(error), masked(next(iter(paths.values())))) from None


def _stat(location: str, found: FileStatus) -> Stat:
    return Stat(
        location,
        found.is_dir,
        found.size,
        found.changed_ms,
        found.mode,
        found.owner,
        found.group,
    )


def of_site() -> WebHdfsFileSystem:
    """The file systems of the site in HADOOP_CONF_DIR, as HADOOP_USER_NAME."""
    try:
        conf = SiteConfiguration.load()
        if not conf.files:
            raise ConfigurationError(
                "HDFS is reached by the cluster's configuration, and there is none: set "
                f"HADOOP_CONF_DIR to the folder of core-site.xml. {conf.where()}"
            )
        return WebHdfsFileSystem(conf, cluster_identity(conf))
    except HadoopError as error:
        raise UnsupportedLocation(errno.EPROTONOSUPPORT, str(error), "hdfs://") from None


def by_address() -> WebHdfsFileSystem:
    """The file systems of locations that name their server; no site configuration is needed."""
    try:
        conf = SiteConfiguration.load()
        return WebHdfsFileSystem(conf, cluster_identity(conf))
    except HadoopError as error:
        raise UnsupportedLocation(errno.EPROTONOSUPPORT, str(error), "webhdfs://") from None


def _split_location(location: str) -> Tuple[str, str]:
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
