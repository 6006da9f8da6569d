"""A small client of WebHDFS, for :mod:`tony`: the standard library and no JVM.

Which file system there is comes from TONY_HDFS (JSON, set by TonY in a job on a cluster), else
from the Hadoop configuration that HADOOP_CONF_DIR names, so that a program runs by hand
unchanged::

    {"default_fs": "hdfs://ns", "user": "ann", "namenodes": {"ns": ["http://h1:9870", ...]}}

Every call is tried again, at the next NameNode too, until one succeeds or it has not got any
further for :data:`DEADLINE_S`.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

DEADLINE_S = 120.0
CALL_S = 20.0  # of the NameNode
DATA_S = 60.0  # without a byte, of a DataNode
_BLOCK = 1 << 20
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
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
    authority = urlsplit(default_fs).netloc
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
                for each in ElementTree.parse(path).iter("property"):  # noqa: S314
                    found[each.findtext("name", "").strip()] = each.findtext("value", "").strip()
                break
    return found


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
        return _status(self._call("GET", "GETFILESTATUS", path)["FileStatus"])

    def list(self, path: str) -> List[Status]:
        """What a folder holds."""
        found = self._call("GET", "LISTSTATUS", path)["FileStatuses"]["FileStatus"]
        return [_status(each) for each in found]

    def walk(self, path: str, below: str = "") -> Iterator[Tuple[str, Status]]:
        """(relative name, status) of all that is below a folder, folders before their content."""
        for each in self.list(f"{path}/{below}" if below else path):
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
            with open(local, "rb") as file, _connected(where, DATA_S) as connection:
                headers = {
                    "Content-Length": str(os.fstat(file.fileno()).st_size),
                    "Content-Type": "application/octet-stream",
                }
                connection.request("PUT", _target(where), body=file, headers=headers)
                response = connection.getresponse()
                body = response.read()
                if response.status != 201:
                    _raise(response.status, body, path)

        self._again(send, lambda: 0)

    def download(self, path: str, size: int, local: str) -> None:
        """A file of that size; goes on where it broke off."""

        def receive() -> None:
            at = _size(local)
            if at >= size:
                if not size:
                    open(local, "wb").close()
                return
            where = self._call("GET", "OPEN", path, offset=str(at))["Location"]
            with _connected(where, DATA_S) as connection, open(local, "ab") as file:
                connection.request("GET", _target(where))
                response = connection.getresponse()
                if response.status != 200:
                    _raise(response.status, response.read(), path)
                while True:
                    block = response.read(_BLOCK)
                    if not block:
                        break
                    file.write(block)
            if _size(local) < size:
                raise HdfsError(f"{path} broke off after {_size(local)} of {size} bytes")

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
                if getattr(error, "errno", None) == 28:  # our own disk is full
                    raise
                if reached() > best:
                    until, best, pause = time.monotonic() + self.deadline_s, reached(), 0.2
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def _call(self, method: str, op: str, path: str, **query: str) -> Dict[str, Any]:
        """The answer; ``Location`` is where a redirect leads."""
        asked = urlencode({"op": op, "user.name": self.user, **query})
        target = f"/webhdfs/v1{quote(path)}?{asked}"
        until, pause, tries = time.monotonic() + self.deadline_s, 0.2, 0
        while True:
            tries += 1
            node = self.namenodes[self._active % len(self.namenodes)]
            try:
                with _connected(node, min(CALL_S, self.deadline_s)) as connection:
                    connection.request(method, target)
                    response = connection.getresponse()
                    body = response.read()
                if response.status == 307:
                    return {"Location": response.getheader("Location") or ""}
                if response.status in (200, 201):
                    return dict(json.loads(body)) if body.strip() else {}
                _raise(response.status, body, path)
            except _FINAL:
                raise
            except (OSError, ValueError, http.client.HTTPException) as error:
                if time.monotonic() + pause > until:
                    raise HdfsError(f"{op} {path}: {node}: {error}") from None
            self._active += 1
            if tries % len(self.namenodes) == 0:
                time.sleep(pause)
                pause = min(2 * pause, 5.0)


def _status(said: Dict[str, Any]) -> Status:
    return Status(
        said["type"] == "DIRECTORY",
        int(said["length"]),
        int(said["modificationTime"]),
        str(said.get("pathSuffix", "")),
    )


def _raise(code: int, body: bytes, path: str) -> None:
    try:
        said = json.loads(body)["RemoteException"]
        name, message = str(said["exception"]), str(said["message"]).split("\n")[0]
    except (ValueError, KeyError, TypeError):
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
def _connected(url: str, timeout: float) -> Iterator[http.client.HTTPConnection]:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    if not parts.hostname:
        raise HdfsError(f"{url!r} is no address")
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    try:
        yield connection
    finally:
        connection.close()


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
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
    path = "/" + parts.path.strip("/")
    return Hdfs(nodes, here.user, deadline_s), path, f"{parts.scheme}://{authority}{path}"
