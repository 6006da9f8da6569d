"""A small client of WebHDFS, for :mod:`tony`: the standard library and no JVM.

Which file system there is comes from TONY_HDFS (JSON, set by TonY in a job on a cluster), else
from the Hadoop configuration that HADOOP_CONF_DIR names, so that a program runs by hand
unchanged::

    {"default_fs": "hdfs://ns", "user": "ann", "namenodes": {"ns": ["http://h1:9870", ...]}}

Every call is tried again, at the next NameNode too, until one succeeds or it has not got any
further for :data:`DEADLINE_S`.

What a server sends is checked before it is used: a listed name is one plain segment of a path, a
redirect leads to a DataNode and only where data is read or written, and never from https to http.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import http.client
import json
import os
import posixpath
import re
import time
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

DEADLINE_S = 120.0
CALL_S = 20.0  # of the NameNode
DATA_S = 60.0  # without a byte, of a DataNode
LONGEST = 64 << 20  # bytes of a NameNode's answer
DEEPEST = 200  # folders within folders
_BLOCK = 1 << 20
_LED = ("CREATE", "OPEN")  # where a NameNode may send us to a DataNode
_HOST = re.compile(
    r"[0-9A-Za-z_-]{1,63}(\.[0-9A-Za-z_-]{1,63})*\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(%\w+)?", re.A
)
_TARGET = re.compile(r"[!-~]*")
_OURS = (errno.ENOSPC, errno.ELOOP)  # errors of our own disk
_AGAIN = (
    "StandbyException",
    "RetriableException",
    "SafeModeException",
    "ObserverRetryOnActiveException",
    "IOException",
)


class HdfsError(OSError):
    """HDFS said no, or nobody answered in time."""


class Refused(HdfsError):
    """HDFS said no, and would say so again."""


class Status(NamedTuple):
    """What a path is."""

    is_dir: bool
    size: int
    changed_ms: int
    name: str = ""


class Site(NamedTuple):
    """Which file systems there are, and who we are there."""

    default_fs: str
    user: str
    namenodes: Dict[str, List[str]]


_FINAL = (FileNotFoundError, FileExistsError, PermissionError, Refused)


def site() -> Site:
    """As TONY_HDFS says, else Hadoop's configuration on this machine."""
    text = os.environ.get("TONY_HDFS")
    if text:
        try:
            said = json.loads(text)
            nodes = {
                str(name): [str(url) for url in urls] for name, urls in said["namenodes"].items()
            }
            return Site(str(said["default_fs"]), str(said.get("user") or _user()), nodes)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"TONY_HDFS cannot be understood: {error!r}") from None
    conf = _configuration()
    default_fs = conf.get("fs.defaultFS") or conf.get("fs.default.name") or ""
    tls = conf.get("dfs.http.policy", "").upper() == "HTTPS_ONLY"
    scheme, port = ("https", 9871) if tls else ("http", 9870)
    key = f"dfs.namenode.{scheme}-address"
    nodes = {}
    for name in _names(conf, "dfs.nameservices"):
        ids = _names(conf, f"dfs.ha.namenodes.{name}") or [""]
        tails = [f".{name}.{each}" if each else f".{name}" for each in ids]
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
    return Site(default_fs, _user(), nodes)


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


class Hdfs:
    """One file system over WebHDFS. Paths are absolute, without a scheme."""

    def __init__(self, namenodes: List[str], user: str, deadline_s: Optional[float] = None) -> None:
        self.namenodes = list(namenodes)
        self.user = user
        self.deadline_s = DEADLINE_S if deadline_s is None else deadline_s
        self._active = 0

    def status(self, path: str) -> Status:
        """FileNotFoundError when there is none."""
        return parse_status(self._call("GET", "GETFILESTATUS", path))

    def list(self, path: str) -> List[Status]:
        """What a folder holds; of a file, itself without a name."""
        return parse_listing(self._call("GET", "LISTSTATUS", path))

    def walk(self, path: str, below: str = "") -> Iterator[Tuple[str, Status]]:
        """(relative name, status) of all that is below a folder, folders before their content."""
        if below.count("/") >= DEEPEST:
            raise Refused(f"{path} is more than {DEEPEST} folders deep")
        top = path.rstrip("/")
        for each in self.list(f"{top}/{below}" if below else path):
            if not each.name:
                raise Refused(f"{path}/{below} lists a file without a name")
            name = f"{below}/{each.name}" if below else each.name
            yield name, each
            if each.is_dir:
                yield from self.walk(path, name)

    def mkdirs(self, path: str) -> None:
        """With its parents; nothing when it is there."""
        self._call("PUT", "MKDIRS", path)

    def delete(self, path: str) -> None:
        """With all below it; nothing when it is gone."""
        self._call("DELETE", "DELETE", path, recursive="true")

    def rename(self, source: str, target: str) -> None:
        """At once and whole; FileExistsError when the target is there."""
        try:
            # With an option, even none, a folder is not moved into one that is there.
            self._call("PUT", "RENAME", source, destination=target, renameoptions="NONE")
        except FileNotFoundError:
            if not self._is(target):  # else an answer that was lost said yes
                raise

    def upload(self, local: str, path: str) -> None:
        """A file's whole content, from its beginning at each try."""

        def send() -> None:
            where = self._call("PUT", "CREATE", path, overwrite="true")["Location"]
            _, _, _, target = there = data_url(where, self._node)
            with open(local, "rb") as file, _connected(there, DATA_S) as connection:
                headers = {
                    "Content-Length": str(os.fstat(file.fileno()).st_size),
                    "Content-Type": "application/octet-stream",
                }
                connection.request("PUT", target, body=file, headers=headers)
                response = connection.getresponse()
                body = _body(response)
                if response.status != 201:
                    _raise(response.status, body, path)

        self._again(send, lambda: 0)

    def download(self, path: str, size: int, local: str) -> None:
        """A file of that size, not one byte more; goes on where it broke off."""

        def receive() -> None:
            at = _size(local)
            if at >= size:
                if not size:
                    _open(local).close()
                return
            where = self._call("GET", "OPEN", path, offset=str(at))["Location"]
            _, _, _, target = there = data_url(where, self._node)
            with _connected(there, DATA_S) as connection, _open(local) as file:
                connection.request("GET", target)
                with connection.getresponse() as response:
                    if response.status != 200:
                        _raise(response.status, _body(response), path)
                    while at < size:
                        block = response.read(min(_BLOCK, size - at))
                        if not block:
                            raise HdfsError(f"{path} broke off after {at} of {size} bytes")
                        file.write(block)
                        at += len(block)
                    if response.read(1):
                        os.unlink(local)
                        raise Refused(f"{path} has changed while it was read")

        self._again(receive, lambda: _size(local))
        if _size(local) != size:
            os.unlink(local)
            raise HdfsError(f"{path} has changed while it was read")

    # -------------------------------------------------------------- one call

    def _is(self, path: str) -> bool:
        try:
            self.status(path)
        except FileNotFoundError:
            return False
        return True

    def _again(self, do: Callable[[], None], reached: Callable[[], int]) -> None:
        """Until it is done, or has got no further for the deadline."""
        until, best, pause = time.monotonic() + self.deadline_s, reached(), 0.2
        while True:
            try:
                do()
                return
            except _FINAL:
                raise
            except (OSError, http.client.HTTPException) as error:
                if getattr(error, "errno", None) in _OURS:
                    raise
                if reached() > best:
                    until, best, pause = time.monotonic() + self.deadline_s, reached(), 0.2
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def _call(self, method: str, op: str, path: str, **query: str) -> Dict[str, Any]:
        """The answer; of an operation on data, ``Location`` is where the data is."""
        asked = urlencode({"op": op, "user.name": self.user, **query})
        target = f"/webhdfs/v1{quote(path)}?{asked}"
        until, pause, tries = time.monotonic() + self.deadline_s, 0.2, 0
        while True:
            tries += 1
            node = self._node
            try:
                with _connected(_address(node), min(CALL_S, self.deadline_s)) as connection:
                    connection.request(method, target)
                    response = connection.getresponse()
                    body = _body(response)
                if response.status == 307 and op in _LED:
                    return {"Location": response.getheader("Location") or ""}
                if 300 <= response.status < 400:
                    raise Refused(
                        f"{op} {path}: {node} answered with a redirect: is it a NameNode?"
                    )
                if response.status in (200, 201):
                    return parse_object(body)
                _raise(response.status, body, path)
            except _FINAL:
                raise
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() + pause > until:
                    raise HdfsError(f"{op} {path}: {node}: {error}") from None
            self._active += 1
            if tries % len(self.namenodes) == 0:
                time.sleep(pause)
                pause = min(2 * pause, 5.0)

    @property
    def _node(self) -> str:
        """The NameNode that is asked."""
        return self.namenodes[self._active % len(self.namenodes)]


# ------------------------------------------------------------------ what servers send


def parse_object(body: bytes) -> Dict[str, Any]:
    """The object in JSON that an answer is; nothing at all is an empty one."""
    try:
        found = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HdfsError("the answer is no object in JSON")
    return found


def parse_status(answer: Dict[str, Any]) -> Status:
    """Of GETFILESTATUS."""
    try:
        return _status(answer["FileStatus"])
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"an answer of HDFS that is no status: {error!r}") from None


def parse_listing(answer: Dict[str, Any]) -> List[Status]:
    """Of LISTSTATUS: each name is one segment of a path, or empty."""
    try:
        return [_status(each) for each in answer["FileStatuses"]["FileStatus"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"an answer of HDFS that is no listing: {error!r}") from None


def _status(found: Dict[str, Any]) -> Status:
    kind, name = found["type"], found.get("pathSuffix", "")
    size, changed_ms = found["length"], found["modificationTime"]
    if type(size) is not int or type(changed_ms) is not int or size < 0:
        raise ValueError(f"a length of {size!r}, changed at {changed_ms!r}")
    if not isinstance(name, str) or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file or folder")
    name.encode()  # ValueError for half a surrogate
    return Status(kind == "DIRECTORY", size, changed_ms, name)


def data_url(where: str, node: str) -> Tuple[bool, str, int, str]:
    """(TLS, host, port, target) of a DataNode that a NameNode leads to."""
    found = _address(where)
    if node.startswith("https:") and not found[0]:
        raise Refused(f"{node} leads from https to http, to {found[1]}: not followed")
    return found


def _address(url: str) -> Tuple[bool, str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        target = f"{parts.path}?{parts.query}"
    except ValueError:
        host, port, target = "", None, ""
    if not host or parts.scheme not in ("http", "https") or not _HOST.fullmatch(host):
        raise HdfsError(f"{url.partition('?')[0]!r} is no address of HDFS")
    if not _TARGET.fullmatch(target):
        raise HdfsError(f"{url.partition('?')[0]!r} holds what no URL can")
    tls = parts.scheme == "https"
    return tls, host, (443 if tls else 80) if port is None else port, target


def _body(response: http.client.HTTPResponse) -> bytes:
    """All of a short answer, in bounded time."""
    parts: List[bytes] = []
    total, until = 0, time.monotonic() + DATA_S
    with response:
        while True:
            part = response.read1(_BLOCK)
            if not part:
                break
            parts.append(part)
            total += len(part)
            if total > LONGEST or time.monotonic() > until:
                raise HdfsError(f"an answer of more than {LONGEST} bytes or {DATA_S:.0f} s")
    if response.length:
        raise HdfsError("the answer broke off")
    return b"".join(parts)


def _raise(code: int, body: bytes, path: str) -> None:
    try:
        said = json.loads(body)["RemoteException"]
        name, message = str(said["exception"]), str(said["message"]).split("\n")[0]
    except (ValueError, KeyError, TypeError, RecursionError):
        name, message = "", f"HTTP {code}"
    if name == "FileNotFoundException":
        raise FileNotFoundError(f"{path} does not exist on HDFS")
    if name == "FileAlreadyExistsException":
        raise FileExistsError(message)
    if name in ("AccessControlException", "SecurityException"):
        raise PermissionError(message)
    if name in _AGAIN or any(word in message for word in _AGAIN) or code >= 500 or not name:
        raise HdfsError(f"{path}: {name}: {message}" if name else f"{path}: {message}")
    raise Refused(f"{path}: {name}: {message}")


@contextlib.contextmanager
def _connected(
    there: Tuple[bool, str, int, str], timeout: float
) -> Iterator[http.client.HTTPConnection]:
    tls, host, port, _ = there
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    connection = kind(host, port, timeout=timeout)
    try:
        yield connection
    finally:
        connection.close()


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
        nodes = [("http://" if parts.scheme == "webhdfs" else "https://") + authority]
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
    return Hdfs(nodes, here.user, deadline_s), path, f"{parts.scheme}://{authority}{path}"
