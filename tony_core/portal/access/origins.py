"""For which host a request is, and from which page it comes. Pure."""

from __future__ import annotations

import ipaddress
import socket
from typing import FrozenSet, Iterable, Optional, Sequence, Union
from urllib.parse import urlsplit

from tony_core.portal.settings import Settings
from tony_core.protocol.socket_owners import is_loopback

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def host_of(header: str) -> Optional[str]:
    """The host of a Host header, without its port and in lower case; None if it is none."""
    if not header or any(mark in header for mark in "/\\@?# \t,"):
        return None
    try:
        split = urlsplit(f"//{header}")
        host, _ = split.hostname, split.port
    except ValueError:
        return None
    return (host or "").rstrip(".").lower() or None


def own_hosts(settings: Settings) -> FrozenSet[str]:
    """The hosts by which browsers and a proxy reach the portal.

    Ports are not compared: a name that leads here by rebinding is another's whatever its port, and
    an ssh tunnel has a port of its own.
    """
    found = {urlsplit(settings.url).hostname or ""}
    if is_loopback(settings.bind):
        found.update(_LOOPBACK)
    if settings.bind not in ("0.0.0.0", "::", ""):
        found.add(settings.bind.lower())
    else:
        found.update((*_LOOPBACK, socket.gethostname().lower(), socket.getfqdn().lower()))
    return frozenset(found - {""})


def is_foreign(
    method: str, origin: Optional[str], fetch_site: Optional[str], host: str, url: str
) -> bool:
    """Whether a request that changes something comes from a page of another origin.

    ``host`` is the Host header with its port, for a page at another port is another origin; ``url``
    is the portal's own, for a proxy may have put another host into the header. Without both of the
    browser's headers it is no browser of today, and the token decides.
    """
    if method in ("GET", "HEAD"):
        return False
    if fetch_site not in (None, "same-origin", "none"):
        return True
    if origin is None:
        return False
    try:
        its_host = urlsplit(origin).netloc.lower()
    except ValueError:
        return True
    return not (url and origin.lower() == url.lower()) and (
        its_host != host.lower() or origin == "null"
    )


def parse_networks(texts: Iterable[str]) -> Sequence[Network]:
    """Networks of their texts, which are valid."""
    return [ipaddress.ip_network(text) for text in texts]


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of these networks; an IPv4 address may be written as IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = (found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None) or found
    return any(plain.version == network.version and plain in network for network in networks)


def safe_target(text: Optional[str]) -> str:
    """A path of this portal to go to after a login; ``/`` for anything that could lead away."""
    if not text or len(text) > 2000 or not text.startswith("/") or text.startswith("//"):
        return "/"
    if "\\" in text or not text.isprintable() or text.startswith(("/login", "/logout")):
        return "/"
    return text
