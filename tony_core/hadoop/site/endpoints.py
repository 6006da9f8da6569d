"""Where a site's services listen, out of its configuration: pairs, ports and protection."""

from __future__ import annotations

import json
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.rpc.sasl import PROTECTIONS, STRENGTH
from tony_core.hadoop.site.certificates import read_authorities
from tony_core.hadoop.site.configuration import SiteConfiguration

RM_CLIENT_PORT = 8032
RM_SCHEDULER_PORT = 8030
RM_WEB_PORT = 8088
RM_WEB_TLS_PORT = 8090
NAME_NODE_PORT = 8020
NAME_NODE_WEB_PORT = 9870
NAME_NODE_WEB_TLS_PORT = 9871

LOG_SERVER = "yarn.log.server.web-service.url"

_RM = "yarn.resourcemanager"
_WEB_PROXY = "yarn.web-proxy.address"
_RPC = "dfs.namenode.rpc-address"
_NAME_NODE_PRINCIPAL = "dfs.namenode.kerberos.principal"
_ANYWHERE = "0.0.0.0"
_ADDRESS = re.compile(r"(?:\[([^\s\[\]/]+)\]|([^\s\[\]/:]+))(?::(\d+))?")


def is_secure(conf: SiteConfiguration) -> bool:
    """Whether the cluster asks for Kerberos; raises :class:`ConfigurationError` for other kinds."""
    configured = conf.text("hadoop.security.authentication").lower()
    if configured not in ("", "simple", "kerberos"):
        raise ConfigurationError(
            f"hadoop.security.authentication is {configured!r} in "
            f"{conf.source('hadoop.security.authentication')}; expected simple or kerberos"
        )
    return configured == "kerberos"


def web_authentication(conf: SiteConfiguration) -> str:
    """How the site's web servers authenticate (``kerberos``), in lower case; empty if unnamed.

    Hadoop's default is ``simple``: they believe the name in a request, or ask for none.
    """
    return conf.text("hadoop.http.authentication.type").lower()


def yarn_uses_tls(conf: SiteConfiguration) -> bool:
    """Whether YARN's web servers speak HTTPS only."""
    return conf.text("yarn.http.policy").upper() == "HTTPS_ONLY"


def rm_client(conf: SiteConfiguration) -> Endpoints:
    """The ResourceManager, for clients."""
    found = _rm(conf, "address", RM_CLIENT_PORT)
    key = f"{_RM}.principal"
    return found._replace(
        principals=_principals(conf, key, found.addresses), principal_note=_named_by(conf, key)
    )


def rm_scheduler(conf: SiteConfiguration) -> Endpoints:
    """The ResourceManager, for masters."""
    return _rm(conf, "scheduler.address", RM_SCHEDULER_PORT)


def rm_web(conf: SiteConfiguration) -> Endpoints:
    """The ResourceManager's pages and REST."""
    if yarn_uses_tls(conf):
        return _rm(conf, "webapp.https.address", RM_WEB_TLS_PORT, tls=True)
    return _rm(conf, "webapp.address", RM_WEB_PORT)


def web_servers(conf: SiteConfiguration) -> Tuple[Address, ...]:
    """YARN's web servers by configuration: ResourceManagers, their web proxy, a log server."""
    found = [*rm_web(conf).addresses]
    proxy, logs = conf.text(_WEB_PROXY), urlsplit(conf.text(LOG_SERVER))
    if proxy:
        found.append(_address(proxy, _WEB_PROXY, 443 if yarn_uses_tls(conf) else 80))
    if logs.netloc:
        found.append(_address(logs.netloc, LOG_SERVER, 443 if logs.scheme == "https" else 80))
    return tuple(found)


def allowed_protections(conf: SiteConfiguration) -> Tuple[str, ...]:
    """The qualities of protection that this site's clients accept, the strongest first."""
    configured = conf.names("hadoop.rpc.protection")
    unknown = [name for name in configured if name.lower() not in PROTECTIONS]
    if unknown:
        raise ConfigurationError(
            f"hadoop.rpc.protection is {', '.join(configured)} in "
            f"{conf.source('hadoop.rpc.protection')}: it knows {', '.join(PROTECTIONS)}"
        )
    chosen = {PROTECTIONS[name.lower()] for name in configured} or set(STRENGTH)
    return tuple(qop for qop in STRENGTH if qop in chosen)


class NameService(NamedTuple):
    """A file system of Hadoop: one NameNode, or several of which one is active."""

    name: str  # the authority in its URLs
    rpc: Endpoints
    web: Endpoints
    highly_available: bool


def name_service(conf: SiteConfiguration, url: Optional[str] = None) -> NameService:
    """The file system that a URL (or, without one, ``fs.defaultFS``) is on.

    A ``webhdfs`` or ``swebhdfs`` URL names a web server. Where that is one of the site's own
    NameNodes', it is that file system, with its pair and its tokens; of another, no address for
    calls is known, and ``rpc`` has none.
    """
    text = url or conf.text("fs.defaultFS")
    parts = urlsplit(text)
    if parts.scheme not in ("hdfs", "webhdfs", "swebhdfs") or not parts.netloc:
        where = "" if url else f" (fs.defaultFS). {conf.where()}"
        raise ConfigurationError(f"{text} is on no HDFS{where}")
    if parts.scheme == "hdfs" or _is_configured(conf, parts.netloc):
        return _by_name(conf, parts.netloc, _uses_tls(conf))
    return _by_web_server(conf, parts.netloc, parts.scheme == "swebhdfs")


def hdfs_location(conf: SiteConfiguration, url: str) -> str:
    """The ``hdfs:`` URL of a location on one of the site's own web servers; others unchanged."""
    parts = urlsplit(url)
    if parts.scheme not in ("webhdfs", "swebhdfs") or not parts.netloc:
        return url
    try:
        found = name_service(conf, url)
    except ConfigurationError:
        return url  # no address: opening it says so
    if not found.rpc.addresses:
        return url
    return f"hdfs://{found.name}{url[len(parts.scheme) + 3 + len(parts.netloc) :]}"


def _uses_tls(conf: SiteConfiguration) -> bool:
    return conf.text("dfs.http.policy").upper() == "HTTPS_ONLY"


def _is_configured(conf: SiteConfiguration, name: str) -> bool:
    """Whether the site's properties describe a file system of that name."""
    return name in conf.names("dfs.nameservices") or bool(conf.names(f"dfs.ha.namenodes.{name}"))


def _by_name(conf: SiteConfiguration, name: str, tls: bool) -> NameService:
    """The file system with that authority in ``hdfs`` URLs."""
    note, by = f"{conf.where()}.", _named_by(conf, _NAME_NODE_PRINCIPAL)
    port = NAME_NODE_WEB_TLS_PORT if tls else NAME_NODE_WEB_PORT
    if _is_configured(conf, name):
        ids = conf.names(f"dfs.ha.namenodes.{name}") or [""]
        rpc = [_name_node(conf, "rpc-address", name, i) for i in ids]
        web_key = "https-address" if tls else "http-address"
        web = [
            _reachable(_name_node(conf, web_key, name, i, f"{a.host}:{port}"), a.host)
            for i, a in zip(ids, rpc)
        ]
        principals = _principals(conf, _NAME_NODE_PRINCIPAL, rpc)
        return NameService(
            name,
            Endpoints(f"the NameNode of {name}", tuple(rpc), note, False, principals, by),
            Endpoints(f"WebHDFS of {name}", tuple(web), note, tls),
            len(rpc) > 1,
        )
    address = _address(name, "fs.defaultFS", NAME_NODE_PORT)
    key = "dfs.namenode.https-address" if tls else "dfs.namenode.http-address"
    own = name in (urlsplit(conf.text("fs.defaultFS")).netloc, conf.text(_RPC))
    # What is configured is about the site's own NameNode; of another, all is as usual.
    text = conf.text(key) if own else ""
    web_address = _reachable(_address(text or f"{_ANYWHERE}:{port}", key, port), address.host)
    principals = _principals(conf, _NAME_NODE_PRINCIPAL, [address])
    return NameService(
        name,
        Endpoints("the NameNode", (address,), note, False, principals, by),
        Endpoints("WebHDFS", (web_address,), note, tls),
        False,
    )


def _by_web_server(conf: SiteConfiguration, authority: str, tls: bool) -> NameService:
    """The file system behind a web server."""
    port = NAME_NODE_WEB_TLS_PORT if tls else NAME_NODE_WEB_PORT
    address = _address(authority, "fs.defaultFS", port)
    wanted = (address.host.lower(), address.port)
    for name in own_names(conf):
        try:
            found = _by_name(conf, name, tls)
        except ConfigurationError:
            continue  # one of several, and its configuration is incomplete
        if wanted in ((one.host.lower(), one.port) for one in found.web.addresses):
            return found
    note = f"{conf.where()}."
    return NameService(
        authority,
        Endpoints("the NameNode", (), note),
        Endpoints("WebHDFS", (address,), note, tls),
        False,
    )


def own_names(conf: SiteConfiguration) -> List[str]:
    """The authorities of the site's own file systems in ``hdfs`` URLs."""
    default = urlsplit(conf.text("fs.defaultFS"))
    urls = [f"hdfs://{name}" for name in conf.names("dfs.nameservices")]
    if default.scheme == "hdfs":
        urls.append(f"hdfs://{default.netloc}")
    if default.scheme == "viewfs":
        urls += viewfs_mounts(conf).values()
    if conf.text(_RPC):
        urls.append(f"hdfs://{conf.text(_RPC)}")
    return list(dict.fromkeys(urlsplit(url).netloc for url in urls if urlsplit(url).netloc))


def on_hdfs(conf: SiteConfiguration, path: str) -> str:
    """The ``hdfs:`` location of a path on ``fs.defaultFS``; of viewfs by its mount table."""
    default = conf.text("fs.defaultFS").rstrip("/")
    if not default.startswith("viewfs:"):
        name_service(conf)
        return default + path
    mounts = viewfs_mounts(conf)
    above = [point for point in mounts if f"{path}/".startswith(point)]
    point = max(above, key=len, default="")
    if not mounts.get(point, "").startswith("hdfs://"):
        roots = sorted({url for url in mounts.values() if url.startswith("hdfs://")})
        raise ConfigurationError(
            f"{default}{path} (fs.defaultFS) is mounted on no HDFS: set tony.yarn.staging-dir to a"
            f" folder of your own below one of its HDFS roots ({', '.join(roots) or 'it has none'})"
        )
    return f"{mounts[point]}/{path[len(point) :]}".rstrip("/")


def viewfs_mounts(conf: SiteConfiguration) -> Dict[str, str]:
    """Where each mount point of a viewfs ``fs.defaultFS``, with a slash behind it, leads."""
    table = f"fs.viewfs.mounttable.{urlsplit(conf.text('fs.defaultFS')).netloc or 'default'}."
    found: Dict[str, str] = {}
    for name, target in conf.to_json().items():
        kind, _, point = name[len(table) :].partition(".") if name.startswith(table) else ("",) * 3
        if kind == "link":
            found[f"{point.rstrip('/')}/"] = target.rstrip("/")
        elif kind in ("linkFallback", "linkMergeSlash"):
            found.setdefault("/", target.rstrip("/"))
    return found


def _name_node(
    conf: SiteConfiguration, what: str, service: str, member: str, default: str = ""
) -> Address:
    key = ".".join(part for part in (f"dfs.namenode.{what}", service, member) if part)
    text = conf.text(key, default)
    if not text:
        raise ConfigurationError(
            f"{key} is not set, and the file system {service} needs it. {conf.where()}"
        )
    return _address(text, key, NAME_NODE_PORT)


def _rm(conf: SiteConfiguration, what: str, port: int, *, tls: bool = False) -> Endpoints:
    members: Sequence[str] = [""]
    if conf.boolean(f"{_RM}.ha.enabled", False):
        members = conf.names(f"{_RM}.ha.rm-ids")
        if not members:
            raise ConfigurationError(
                f"{_RM}.ha.enabled is true, and {_RM}.ha.rm-ids names no ResourceManager. "
                f"{conf.where()}"
            )
    addresses: List[Address] = []
    sources: List[str] = []
    for member in members:
        tail = f".{member}" if member else ""
        host = conf.text(f"{_RM}.hostname{tail}") or conf.text(f"{_RM}.hostname")
        key = f"{_RM}.{what}{tail}"
        address = _address(conf.text(key) or f"{host}:{port}", key, port)
        addresses.append(_reachable(address, host))
        sources.append(_from(conf, key, f"{_RM}.hostname{tail}", address.port))
    note = ""
    if any(address.host == _ANYWHERE for address in addresses):
        note = (
            f"No ResourceManager is configured ({_RM}.hostname is {_ANYWHERE}, which "
            f"stands for this machine). {conf.where()}"
        )
        if not conf.files:
            raise ConfigurationError(f"{note}. Set HADOOP_CONF_DIR to the cluster's configuration")
    return Endpoints(
        "the ResourceManager",
        tuple(addresses),
        note or f"{'; '.join(sources)}. {conf.where()}",
        tls,
    )


def _principals(conf: SiteConfiguration, key: str, addresses: Sequence[Address]) -> Tuple[str, ...]:
    """The principals of servers, each with its own host; none where no property names them."""
    principal = conf.text(key)
    if not principal:
        return ()
    from tony_core.hadoop.kerberos.principals import expand_host

    return tuple(expand_host(principal, address.host) for address in addresses)


def _from(conf: SiteConfiguration, key: str, host_key: str, port: int) -> str:
    """Which property an address is from, and in which file."""
    if conf.text(key):
        return f"{key} says so{_in_file(conf, key)}"
    host_key = host_key if conf.text(host_key) else f"{_RM}.hostname"
    return f"{host_key} says so{_in_file(conf, host_key)}, and {key} is not set (port {port})"


def _named_by(conf: SiteConfiguration, key: str) -> str:
    """Which property names a server's principal, and in which file; empty if it is not set."""
    if not conf.text(key):
        return ""
    return f"{key} is {conf.text(key)}{_in_file(conf, key)}: correct it if the server is another"


def _in_file(conf: SiteConfiguration, key: str) -> str:
    source = conf.source(key)
    return f" in {source}" if source and conf.files else ""


def _reachable(address: Address, host: str) -> Address:
    """A server that listens everywhere is reached by its host's name."""
    return Address(host, address.port) if address.host == _ANYWHERE and host else address


def _address(text: str, key: str, port: int) -> Address:
    match = _ADDRESS.fullmatch(text.rpartition("//")[2].rstrip("/"))
    if not match or int(match.group(3) or 0) > 0xFFFF:
        raise ConfigurationError(f"{key} is {text!r}: no address of the form HOST:PORT")
    return Address(match.group(1) or match.group(2), int(match.group(3) or port))


HDFS_VARIABLE = "TONY_HDFS"
"""Names HDFS for programs whose node has no Hadoop; ``program/tony_hdfs_client.py`` reads it."""


def hdfs_environment(
    conf: SiteConfiguration,
    user: str,
    token_service: Optional[Callable[[NameService], str]] = None,
) -> str:
    """The value of TONY_HDFS; empty on a site without HDFS. It holds no secret::

        {"default_fs": "hdfs://ns", "user": "ann", "namenodes": {"ns": ["http://h1:9870", ...]}}

    ``namenodes`` holds the WebHDFS servers of each file system, by the authority of its URLs; of
    a highly available one all NameNodes, in any order. On a secure cluster ``tokens`` holds the
    service of each file system's token (``token_service`` makes it), in the program's token file.
    With HTTPS ``authorities`` holds the site's (:mod:`tony_core.hadoop.site.certificates`).
    """
    default_fs = conf.text("fs.defaultFS")
    urls = [default_fs, *(f"hdfs://{name}" for name in conf.names("dfs.nameservices"))]
    if default_fs.startswith("viewfs:"):
        urls += viewfs_mounts(conf).values()
    namenodes: Dict[str, List[str]] = {}
    tokens: Dict[str, str] = {}
    for url in urls:
        try:
            service = name_service(conf, url)
            namenodes[service.name] = list(service.web.urls)
            if token_service is not None:
                tokens[service.name] = token_service(service)
        except ConfigurationError:
            continue  # one of several, and its configuration is incomplete
    if not namenodes:
        return ""
    value: Dict[str, object] = {"default_fs": default_fs, "user": user, "namenodes": namenodes}
    if token_service is not None:
        value["tokens"] = tokens
    authorities = read_authorities(conf)
    if authorities and any(url.startswith("https:") for urls in namenodes.values() for url in urls):
        value["authorities"] = authorities
    return json.dumps(value, separators=(",", ":"))
