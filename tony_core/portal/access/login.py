"""Ways to learn who asks: by the socket, and by a proxy's header. They need no other server."""

from __future__ import annotations

import os
import pwd
import socket
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from tony_core.files.local import user_name
from tony_core.portal.access.accounts import Accounts
from tony_core.portal.access.origins import is_within, parse_networks
from tony_core.portal.access.refusal import Refused
from tony_core.portal.settings import Login
from tony_core.portal.viewer import Viewer
from tony_core.protocol.socket_owners import SocketTable, Unavailable, is_loopback


class Identified(NamedTuple):
    """Who asks, and how that is known."""

    viewer: Viewer
    login: str  # what the token of his forms belongs to
    new_session: str = ""  # the number that goes into a cookie
    headers: Dict[str, str] = {}  # of the answer


class LoginMethod(Protocol):
    """Finds out who asks."""

    can_log_out: bool

    async def identify(self, request: Request) -> Identified:
        """Who asks; raises Refused, or Answered with an answer of the login's own."""


class Peers:
    """Whose process is at the other end of a connection, by the kernel."""

    def __init__(self) -> None:
        self._table = SocketTable()
        self._own: Dict[str, bool] = {}

    def uid_of(self, request: Request) -> Optional[int]:
        """The uid of the process that asks, if it is one of this machine.

        Raises :class:`Refused` where the kernel does not tell of a process of this machine.
        """
        client, server = request.scope.get("client"), request.scope.get("server")
        if not client or not server or server[1] is None:
            raise Refused(403, "the connection has no address")
        try:
            owner = self._table.owner_of_end((client[0], client[1]), (server[0], server[1]))
        except ValueError:
            raise Refused(403, "the connection has no numeric address") from None
        except Unavailable as error:
            if not self.is_own_address(client[0]):
                return None
            raise Refused(403, f"the kernel does not tell whose process asks: {error}") from None
        if owner is not None:
            return owner.uid
        if self.is_own_address(client[0]):
            raise Refused(403, "the process that asked has closed its connection")
        return None

    def is_own_address(self, host: str) -> bool:
        """Whether an address is this machine's."""
        if is_loopback(host):
            return True
        if host not in self._own:
            if len(self._own) > 1000:
                self._own.clear()
            self._own[host] = _can_bind(host)
        return self._own[host]

    def close(self) -> None:
        """Close the descriptor."""
        self._table.close()


def _can_bind(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
        return True
    except OSError:
        return False


class SocketLogin:
    """The user of this machine whose process asks: the portal's own, or root.

    The portal reads with the rights of its user, who could read all of it himself: he sees all.
    """

    can_log_out = False

    def __init__(self, accounts: Accounts, peers: Peers) -> None:
        self._accounts = accounts
        self._peers = peers
        self._own = os.geteuid()
        self._viewers: Dict[int, Viewer] = {}

    async def identify(self, request: Request) -> Identified:
        """Who asks, by the kernel."""
        uid = self._peers.uid_of(request)
        if uid not in (self._own, 0) or uid is None:
            who = user_name(self._own)
            whose = who if self._own == 0 else f"{who} and root"
            raise Refused(
                403,
                f"this portal is {who}'s: it answers processes of {whose} on this machine,"
                " and no others. A portal for several users needs another login (docs/portal.md)",
            )
        if uid not in self._viewers:
            name = user_name(uid)
            make = lambda: self._accounts.viewer(name, is_admin=True)  # noqa: E731
            self._viewers[uid] = await run_in_threadpool(make)
        return Identified(self._viewers[uid], f"socket {uid}")


class HeaderLogin:
    """The user that a proxy names in a header.

    Anyone can send a header. It counts from the addresses that the settings trust; where that is
    an address of this machine, every user of it can connect from there, so the process must be
    root's, the portal's own user's, or one of ``trusted-users``.
    """

    can_log_out = False

    def __init__(self, login: Login, accounts: Accounts, peers: Peers) -> None:
        self._accounts = accounts
        self._peers = peers
        self._networks = parse_networks(login.trusted)
        self._uids = trusted_uids(login.trusted_users)
        self._header, self._groups_header = login.header, login.groups_header

    async def identify(self, request: Request) -> Identified:
        """Who asks, by the proxy."""
        self.require_proxy(request)
        name = _only(request, self._header)
        if not name:
            raise Refused(401, f"the proxy names no user: its header {self._header} is missing")
        groups: Optional[List[str]] = None
        if self._groups_header:
            groups = [one.strip() for one in _only(request, self._groups_header).split(",")]
        viewer = await run_in_threadpool(self._accounts.viewer, name, groups)
        return Identified(viewer, f"header {viewer.name}")

    def require_proxy(self, request: Request) -> None:
        """Refuse a request that the proxy did not send."""
        host = request.client.host if request.client else ""
        if not is_within(host, self._networks):
            raise Refused(
                403,
                "this portal is reached through its proxy only: requests from this address are not"
                " trusted ([login] trusted in the portal's settings)",
            )
        uid = self._peers.uid_of(request)
        if uid is not None and uid not in self._uids:
            raise Refused(
                403,
                "this portal is reached through its proxy only, and a process of"
                f" {user_name(uid)} is not it ([login] trusted-users in the portal's settings)",
            )


def trusted_uids(users: Iterable[str]) -> FrozenSet[int]:
    """The uids whose processes may be the proxy; raises KeyError for a user who is not known."""
    return frozenset((0, os.geteuid(), *(pwd.getpwnam(name).pw_uid for name in users)))


def _only(request: Request, header: str) -> str:
    """The one value of a header; raises :class:`Refused` when it comes twice."""
    found = request.headers.getlist(header)
    if len(found) > 1:
        raise Refused(400, f"the header {header} stands {len(found)} times in the request")
    value = found[0].strip() if found else ""
    try:
        return value.encode("latin-1").decode("utf-8")  # as proxies write other letters
    except UnicodeError:
        return value
