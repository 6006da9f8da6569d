"""Who may read a page behind YARN's web proxy.

A page on a node of a cluster can be reached by any user on its network, so two questions are
asked of each request, as YARN's own filter for masters (AmIpFilter) does:

**Does the proxy ask?** Only the addresses of the cluster's proxies are answered; they are looked
up when the first reader comes, again when an unknown address asks (a ResourceManager may have
moved), and at most every :data:`AGAIN_S`. A name that cannot be looked up keeps the addresses that
it had: a name server that is away for a moment closes no page. Other requests are refused with a
message that names the proxy's address. There is no redirect: a proxy that asks from an address
without a known name would be redirected to itself for ever.

**For whom?** The proxy names the user that the cluster's web server authenticated in a cookie
(``proxy-user``). The job's owner may look, and whom its view list names, by user or by group
(groups as this node knows them). On a cluster whose web pages do not authenticate, every user is
the *static user* (dr.who), or has no name; YARN itself shows them all that its web pages have,
every log included, and believes every name in a remote call. A page that asked for more than
that would be closed to its owner and open to all others, so the static user may look where
there is one. Private pages need HTTP authentication for the cluster.

On a cluster with Kerberos the page asks for more: the static user, a user without a name, and
any user where the web servers believe the name in a request are refused, even by a list that
lets all users in.

The proxy can be trusted to overwrite the cookie, since it passes none of the browser's.
Looking up hosts and groups may block, so a thread does it; the request waits meanwhile.
"""

from __future__ import annotations

import ipaddress
import math
import socket
from typing import Callable, Dict, FrozenSet, List, Optional, Tuple
from urllib.parse import unquote_plus

from tony_core.job.access_list import AccessList
from tony_core.master.web.server import MAX_CONNECTIONS, Exchange, Handler, Response
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.resolver import RESOLVER
from tony_core.protocol.user_groups import groups_of
from tony_core.schedulers.container_pool import WebProxy

COOKIE = "proxy-user"
AGAIN_S = 10.0
SOON_S = 1.0  # of a request that does not depend on it: the lookup is waited for no longer
GROUPS_S = 300.0  # what is known of a user's groups holds so long


class ProxyGate:
    """Lets readers in, or refuses them."""

    def __init__(self, reactor: Reactor, owner: str, proxy: WebProxy) -> None:
        self._reactor = reactor
        self._owner = owner
        self._hosts = [name for name in proxy.hosts if name]
        self._static = proxy.static_user
        self._unauthenticated = frozenset(proxy.unauthenticated)
        self._readers = AccessList.parse(proxy.view_acl)
        self._public_url = proxy.public_url
        self._proxies: Dict[str, FrozenSet[str]] = {}  # by host, as far as it was ever known
        self._looked_up_at = -math.inf
        self._is_looking_up = False
        self._waiting: List[Tuple[Exchange, Handler]] = []
        self._members: Dict[str, Tuple[float, bool]] = {}  # by user: whether a group lets him in

    def is_proxy(self, address: str) -> bool:
        """Whether it is a proxy's, as far as their addresses are known by now."""
        plain = _plain(address)
        return any(plain in addresses for addresses in self._proxies.values())

    def admit(self, exchange: Exchange, let_in: Handler) -> None:
        """Pass a request on, now or soon, or refuse it."""
        self.identify(exchange, lambda exchange: self._admit(exchange, let_in))

    def identify(self, exchange: Exchange, then: Handler) -> None:
        """Pass a request on, once it is known whether the proxy asks (:meth:`is_proxy`)."""
        if exchange.done:
            return  # it went away while something was looked up
        if self.is_proxy(exchange.peer()):
            exchange.trust()
        elif self._is_looking_up or self._reactor.now() - self._looked_up_at >= AGAIN_S:
            self._look_up_proxies(exchange, lambda exchange: self.identify(exchange, then))
            return
        then(exchange)

    def identify_soon(self, exchange: Exchange, then: Handler) -> None:
        """Pass a request on that does not depend on it: what is known soon has to do."""
        passed = False

        def pass_on(exchange: Exchange) -> None:
            nonlocal passed
            timer.cancel()
            if not passed and not exchange.done:
                passed = True
                then(exchange)

        wait_s = 0.0 if self._proxies else SOON_S
        timer = exchange.reactor.call_later(wait_s, exchange.handle, pass_on)
        self.identify(exchange, pass_on)

    def _admit(self, exchange: Exchange, let_in: Handler) -> None:
        if exchange.done:
            return
        if not self.is_proxy(exchange.peer()):
            self._refuse(exchange, "this page can only be read through the cluster's web proxy")
            return
        user = user_of(exchange.request.headers.get("cookie", ""))
        allowed = self._may_read(user)
        if allowed is None:
            self._look_up_groups(
                user or "",
                lambda: exchange.handle(lambda exchange: self._admit(exchange, let_in)),
            )
        elif allowed:
            let_in(exchange)
        elif user and self._is_unauthenticated(user):
            self._refuse(
                exchange,
                f"{user} may not read this page: the cluster's web servers do not authenticate"
                " their users (hadoop.http.authentication.type)",
            )
        elif user:
            self._refuse(exchange, f"{user} may not read this page: the job is {self._owner}'s")
        else:
            self._refuse(exchange, "the proxy does not name the user who asks")

    def _may_read(self, user: Optional[str]) -> Optional[bool]:
        """None: his groups would have to be known."""
        if self._unauthenticated and (not user or self._is_unauthenticated(user)):
            return False
        if self._readers.is_for_all:
            return True
        if not user:
            return user is None and bool(self._static)
        if user in (self._owner, self._static) or user in self._readers.users:
            return True
        if not self._readers.groups:
            return False
        at, member = self._members.get(user, (-math.inf, False))
        return member if self._reactor.now() - at < GROUPS_S else None

    def _is_unauthenticated(self, user: str) -> bool:
        return user in self._unauthenticated or "*" in self._unauthenticated

    def _refuse(self, exchange: Exchange, text: str) -> None:
        where = f": {self._public_url}" if self._public_url else ""
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        exchange.answer(Response(403, f"{text}{where}\n".encode(), headers=headers))

    # ------------------------------------------------------------------ what may block

    def _look_up_proxies(self, exchange: Exchange, then: Handler) -> None:
        if len(self._waiting) > MAX_CONNECTIONS:  # most of them have gone
            self._waiting = [entry for entry in self._waiting if not entry[0].done]
        self._waiting.append((exchange, then))
        if self._is_looking_up:
            return
        self._is_looking_up = True

        def found(addresses: Dict[str, FrozenSet[str]]) -> None:
            self._proxies.update(addresses)
            self._looked_up_at = self._reactor.now()
            self._is_looking_up = False
            waiting, self._waiting = self._waiting, []
            for exchange, then in waiting:
                exchange.handle(then)

        RESOLVER.resolve(
            self._reactor, ("proxies", *self._hosts), lambda: addresses_of(self._hosts),
            found, lambda reason: found({}), keep_s=0,
        )  # fmt: skip

    def _look_up_groups(self, user: str, then: Callable[[], None]) -> None:
        def found(groups: FrozenSet[str]) -> None:
            if len(self._members) > 1000:
                self._members.clear()
            self._members[user] = (self._reactor.now(), bool(groups & self._readers.groups))
            then()

        RESOLVER.resolve(
            self._reactor, ("groups", user), lambda: groups_of(user),
            found, lambda reason: found(frozenset()), keep_s=0,
        )  # fmt: skip


def user_of(cookies: str) -> Optional[str]:
    """The user that the proxy names; None without one, empty when the name is invalid."""
    found = [
        unquote_plus(value.strip())
        for name, _, value in (part.partition("=") for part in cookies.split(";"))
        if name.strip() == COOKIE
    ]
    if not found:
        return None
    return found[0] if len(found) == 1 else ""


def addresses_of(hosts: List[str]) -> Dict[str, FrozenSet[str]]:
    """All addresses of each of these hosts whose name is known here."""
    found: Dict[str, FrozenSet[str]] = {}
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            continue  # another one may do, and it is looked up again
        found[host] = frozenset(_plain(str(answer[4][0])) for answer in answers)
    return found


def _plain(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
