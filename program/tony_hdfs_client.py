"""HDFS for :mod:`tony`: which file systems there are, and transfers that survive failures.

Which file system there is comes from TONY_HDFS (JSON, set by TonY in a job on a cluster), else
from the Hadoop configuration that HADOOP_CONF_DIR names, so that a program runs by hand
unchanged::

    {"default_fs": "hdfs://ns", "user": "ann", "namenodes": {"ns": ["http://h1:9870", ...]}}

On a secure cluster ``"tokens": {"ns": "ha-hdfs:ns"}`` names the service of each file system's
delegation token, which is in the file that HADOOP_TOKEN_FILE_LOCATION names; a job with a keytab
replaces that file, and the next call takes the fresh token. With HTTPS
``"authorities"`` holds the certificates (PEM) to trust beside this machine's.

Every call is tried again, at the next NameNode too, until one succeeds or it has made no progress
for :data:`DEADLINE_S`. The client itself is :mod:`tony_webhdfs`, the same that TonY uses.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import posixpath
import socket
import time
from typing import BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit
from xml.etree import ElementTree

from tony_webhdfs.client import WebHdfs
from tony_webhdfs.connection import split_url
from tony_webhdfs.namenodes import RetryLimits, Service
from tony_webhdfs.responses import FileStatus
from tony_webhdfs.token_file import (
    HDFS_DELEGATION,
    LOCATION,
    CredentialsError,
    parse,
    url_string,
)

DEADLINE_S = 120.0
CALL_S = 20.0  # for one answer of a NameNode
DEEPEST = 200  # folders within folders
_BLOCK = 1 << 20
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
# Errors that may be over a little later: of the servers, and of the way to them.
_PASSING = (errno.EHOSTUNREACH, errno.EIO, errno.EPROTO, errno.EROFS)


class Site(NamedTuple):
    """Which file systems there are, and who we are there."""

    default_fs: str
    user: str
    namenodes: Dict[str, List[str]]
    tokens: Optional[Dict[str, str]] = None  # services of tokens, where only tokens are believed
    authorities: str = ""  # to trust for HTTPS beside this machine's, as PEM


def site() -> Site:
    """The site in TONY_HDFS, else in Hadoop's configuration on this machine."""
    text = os.environ.get("TONY_HDFS")
    if text:
        try:
            given = json.loads(text)
            nodes = {
                str(name): [str(url) for url in urls] for name, urls in given["namenodes"].items()
            }
            tokens = given.get("tokens")
            if tokens is not None:
                tokens = {str(name): str(service) for name, service in tokens.items()}
            user = str(given.get("user") or _user())
            authorities = str(given.get("authorities") or "")
            return Site(str(given["default_fs"]), user, nodes, tokens, authorities)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"TONY_HDFS cannot be understood: {error!r}") from None
    conf = _configuration()
    default_fs = conf.get("fs.defaultFS") or conf.get("fs.default.name") or ""
    tls = conf.get("dfs.http.policy", "").upper() == "HTTPS_ONLY"
    scheme, port = ("https", 9871) if tls else ("http", 9870)
    key = f"dfs.namenode.{scheme}-address"
    nodes = {}
    tokens: Dict[str, str] = {}
    for name in _names(conf, "dfs.nameservices"):
        ids = _names(conf, f"dfs.ha.namenodes.{name}") or [""]
        tails = [f".{name}.{each}" if each else f".{name}" for each in ids]
        if len(ids) == 1:
            tokens[name] = conf.get(f"dfs.namenode.rpc-address{tails[0]}", "")
        for tail in tails:
            rpc = conf.get(f"dfs.namenode.rpc-address{tail}", "").partition(":")[0]
            nodes.setdefault(name, []).append(_web(scheme, conf.get(key + tail), rpc, port))
    try:
        authority = urlsplit(default_fs).netloc
    except ValueError as error:
        raise ValueError(f"fs.defaultFS {default_fs!r}: {error}") from None
    if authority and authority not in nodes:
        host = authority.rpartition(":")[0] or authority
        nodes[authority] = [_web(scheme, conf.get(key), host, port)]
    is_secure = conf.get("hadoop.security.authentication", "").lower() == "kerberos"
    return Site(default_fs, _user(), nodes, tokens if is_secure else None)


def _web(scheme: str, address: Optional[str], host: str, port: int) -> str:
    text = address or f"{host}:{port}"
    return f"{scheme}://" + text.replace("0.0.0.0", host, 1)


def _user() -> str:
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def _names(conf: Dict[str, str], key: str) -> List[str]:
    return [word.strip() for word in conf.get(key, "").split(",") if word.strip()]


def _configuration() -> Dict[str, str]:
    env = os.environ
    folders = [env.get("YARN_CONF_DIR"), env.get("HADOOP_CONF_DIR"), "/etc/hadoop/conf"]
    if env.get("HADOOP_HOME"):
        folders.insert(2, os.path.join(env["HADOOP_HOME"], "etc", "hadoop"))
    found: Dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        for folder in folders:
            path = os.path.join(folder or "", name)
            if folder and os.path.isfile(path):
                found.update(_properties(path))
                break
    return found


def _properties(path: str) -> Dict[str, str]:
    """The properties of a Hadoop XML file; ValueError, with its path, for a damaged one."""
    try:
        properties = list(ElementTree.parse(path).iter("property"))  # noqa: S314
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    return {
        each.findtext("name", "").strip(): each.findtext("value", "").strip() for each in properties
    }


# ------------------------------------------------------------------ the client


class Hdfs(WebHdfs):
    """A file system over WebHDFS, with transfers that are tried again."""

    def __init__(
        self,
        namenodes: List[str],
        user: str,
        deadline_s: Optional[float] = None,
        obtain: Optional[Callable[[], str]] = None,
        authorities: str = "",
    ) -> None:
        self.namenodes = list(namenodes)
        self.deadline_s = DEADLINE_S if deadline_s is None else deadline_s
        parts = [split_url(url) for url in self.namenodes]
        tls = any(secure for secure, _, _ in parts)
        addresses = [address for _, address, _ in parts]
        service = Service(addresses, tls, authorities=authorities)
        call_s = min(CALL_S, self.deadline_s)
        limits = RetryLimits(self.deadline_s, self.deadline_s, call_s, thorough=True)
        super().__init__(service, user, limits=limits, obtain=obtain)

    def walk(self, path: str, below: str = "") -> Iterator[Tuple[str, FileStatus]]:
        """(relative name, status) of all that is below a folder, folders before their content."""
        if below.count("/") >= DEEPEST:
            raise OSError(errno.ELOOP, f"more than {DEEPEST} folders deep", path)
        top = path.rstrip("/")
        for each in self.list(f"{top}/{below}" if below else path):
            name = f"{below}/{each.name}" if below else each.name
            yield name, each
            if each.is_dir:
                yield from self.walk(path, name)

    def upload(self, local: str, path: str) -> None:
        """A file's whole content, from its beginning at each try."""

        def send() -> None:
            with open(local, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self.create(path, lambda upload: upload.send_file(file, size, local))

        self._retry(send, path, lambda: 0)

    def download(self, path: str, size: int, local: str) -> None:
        """A file of that size, not one byte more; goes on where it broke off."""

        def receive() -> None:
            at = _size(local)
            if at >= size:
                if not size:
                    _open(local).close()
                return
            with self.open(path, at) as stream, _open(local) as file:
                while at < size:
                    block = stream.read1(min(_BLOCK, size - at))
                    if not block:
                        raise OSError(errno.EIO, f"ended after {at} of {size} bytes", path)
                    file.write(block)
                    at += len(block)
                if stream.read1(1):
                    os.unlink(local)
                    raise OSError(errno.ESTALE, "has changed while it was read", path)

        self._retry(receive, path, lambda: _size(local))
        if _size(local) != size:
            os.unlink(local)
            raise OSError(errno.ESTALE, "has changed while it was read", path)

    def _retry(self, do: Callable[[], None], path: str, progress: Callable[[], int]) -> None:
        """Do it until it is done, or has made no progress for the deadline."""
        until, best, pause = time.monotonic() + self.deadline_s, progress(), _FIRST_PAUSE_S
        while True:
            try:
                do()
                return
            except OSError as error:
                no_node = error.errno == errno.ENOSPC and error.filename == path  # not our disk
                if error.errno not in _PASSING and not no_node:
                    raise
                if progress() > best:
                    until, best = time.monotonic() + self.deadline_s, progress()
                    pause = _FIRST_PAUSE_S
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _open(path: str) -> BinaryIO:
    """A file to append to; never one that a link leads to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "ab")


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def connect(url: str, deadline_s: Optional[float] = None) -> Tuple[Hdfs, str, str]:
    """(file system, path there, the whole URL) of an ``hdfs://`` or ``webhdfs://`` URL."""
    parts = urlsplit(url)
    here = site()
    authority = parts.netloc
    if parts.scheme in ("webhdfs", "swebhdfs") and authority:
        nodes = _by_web_server(here, parts.scheme == "swebhdfs", authority)
    else:
        authority = authority or urlsplit(here.default_fs).netloc
        host = authority.rpartition(":")[0] or authority
        same = (authority, f"{authority}:8020", host if authority.endswith(":8020") else authority)
        known = [here.namenodes[name] for name in same if name in here.namenodes]
        nodes = known[0] if known else [f"http://{host}:9870"] if host else []
    if not nodes:
        raise ValueError(
            f"{url} names no file system, and there is none to take instead: set HADOOP_CONF_DIR"
            " or write hdfs://HOST:PORT/..."
        )
    path = posixpath.normpath("/" + parts.path.strip("/"))
    name = next((name for name, urls in here.namenodes.items() if nodes[0] in urls), authority)
    token = _find_token(here, name)
    return (
        Hdfs(nodes, here.user, deadline_s, token and token.text, here.authorities),
        path,
        f"{parts.scheme}://{authority}{path}",
    )


def _by_web_server(here: Site, tls: bool, authority: str) -> List[str]:
    """The NameNodes of the file system behind a web server: the site's own pair, or this one."""
    host, _, port = authority.partition(":") if "]" not in authority else (authority, "", "0")
    own = f"{'https' if tls else 'http'}://{host.lower()}:{port or (9871 if tls else 9870)}"
    for urls in here.namenodes.values():
        if own in map(str.lower, urls):
            return urls
    return [("https://" if tls else "http://") + authority]


# ------------------------------------------------------------------ tokens


class _HeldToken:
    """The token of a file system, read anew when its file has been replaced."""

    def __init__(self, file: str, services: List[str], name: str) -> None:
        self._file = file
        self._services = services
        self._name = name
        self._version = self._look()
        self._text = self._read()

    def text(self) -> str:
        """The newest token, as WebHDFS takes it; the known one while the file has none."""
        try:
            version = self._look()
            if version != self._version:
                self._text = self._read()
                self._version = version
        except (OSError, ValueError):
            pass  # a server judges the token that we have
        return self._text

    def _look(self) -> Tuple[int, int, int]:
        found = os.stat(self._file)
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> str:
        with open(self._file, "rb") as stream:
            content = stream.read()
        try:
            tokens, _ = parse(content)
        except CredentialsError as error:
            raise ValueError(f"{LOCATION}: {self._file}: {error}") from None
        for token in tokens:
            if token.service in self._services and token.kind == HDFS_DELEGATION:
                return url_string(token)
        raise PermissionError(
            errno.EACCES,
            f"there is no token for this file system in {self._file} ({LOCATION}). Where a job"
            " needs more than its default one, tony.other.namenodes names them",
            f"hdfs://{self._name}",
        )


def _find_token(here: Site, name: str) -> Optional[_HeldToken]:
    """The token for a file system; None where servers believe a name."""
    if here.tokens is None:
        return None
    file = os.environ.get(LOCATION, "")
    if not file:
        raise PermissionError(
            errno.EACCES, f"this cluster asks for tokens, and {LOCATION} is not set", name
        )
    return _HeldToken(file, _token_services(here.tokens.get(name) or name), name)


def _token_services(name: str) -> List[str]:
    """How the token of a file system may be called; its address may be a name or a number."""
    if name.startswith("ha-hdfs:"):
        return [name]
    host, _, port = name.rpartition(":") if ":" in name else (name, "", "8020")
    found = [f"ha-hdfs:{name}", f"{host.lower()}:{port}"]
    try:
        found.append(f"{socket.gethostbyname(host)}:{port}")
    except OSError:
        pass
    return found
