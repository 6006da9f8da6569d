"""HTTP to the web servers of a cluster: YARN's, and the proxy in front of jobs' pages.

:class:`WebAccess` says who a client is to them. An open cluster believes a name (``user.name=``).
On a secure one each connection begins with a handshake in which the server proves who it is
(:mod:`tony_core.hadoop.kerberos.spnego`), or carries a token, which only the ResourceManager's web
server takes. Neither goes to another server than the one that it is for: a redirect leads to
another connection, with a handshake of its own. A connection that was closed begins anew.

Addresses come from pages, histories and redirects, which a job's author writes, and who gets a
handshake can pass it on to another server of that host. So a login goes only to a server that the
cluster names: one of the site's configuration, or a node in the ResourceManager's report
(:meth:`WebAccess.begin`). To any other address a client with a login does not even connect.

A service that acts for a user names that user (``doAs=``) to the ResourceManager's web server,
behind which are the jobs' pages; to the others, which know no such parameter, it is itself.

WebHDFS has a client of its own, for the nodes (:mod:`tony_core.files.webhdfs`).
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections import OrderedDict
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Protocol, Set, Tuple
from urllib.parse import urlencode

from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.site.certificates import CA_FILE

CONNECT_S = 5.0
TIMEOUT_S = 20.0
TOKEN_FIELD = "X-Hadoop-Delegation-Token"  # noqa: S105
_MAX_IDLE = 32
_MAX_TEXT = 4 << 20
_LONGEST_REFUSAL = 64 << 10

_Key = Tuple[bool, str]


class WebUnreachable(OSError):
    """No answer, or it broke off."""


class ServerNotProved(HadoopError):
    """A request with secrets in it was not sent: the server does not prove who it is."""


class ForeignServer(HadoopError):
    """A server that the cluster does not name; it gets no login."""


class Negotiation(Protocol):
    """The authentication of one connection."""

    @property
    def ready(self) -> bool:
        """Whether requests with secrets in them may be sent."""

    def fields(self) -> Dict[str, str]:
        """The header fields of the next request."""

    def check(self, status: int, headers: Mapping[str, str]) -> bool:
        """Check an answer; False: it was refused, ask once more."""


class TokenFields:
    """The authentication by a token, which proves nothing about the server."""

    ready = True

    def __init__(self, token: str) -> None:
        self._token = token

    def fields(self) -> Dict[str, str]:
        """The token: not in the URL, which a proxy would pass on."""
        return {TOKEN_FIELD: self._token}

    def check(self, status: int, headers: Mapping[str, str]) -> bool:
        """Every answer is taken."""
        return True


class WebAccess:
    """Who a client is to web servers, and which authorities it trusts."""

    def __init__(
        self,
        user: str = "",
        *,
        login: Any = None,
        login_for: Tuple[Address, ...] = (),
        is_node: Callable[[str, int], bool] = lambda host, port: False,
        token: str = "",
        token_for: Tuple[Address, ...] = (),
        proxy_user: str = "",
        proxy_user_for: Tuple[Address, ...] = (),
        authorities: str = "",
    ) -> None:
        """``user`` is named to the servers; ``token`` goes to the addresses ``token_for`` only.

        ``login`` goes to the servers ``login_for``, and to the nodes that ``is_node`` knows.
        At the addresses ``proxy_user_for`` the owner of the login acts for ``proxy_user``.
        ``authorities`` (PEM) are trusted beside those of this machine.
        """
        self.user = user
        self._login = login
        self._login_for = login_for
        self._is_node = is_node
        self._token = token
        self._token_for = _pairs(token_for)
        self._proxy_user = proxy_user
        self._proxy_user_for = _pairs(proxy_user_for) if proxy_user else frozenset()
        self._authorities = authorities
        self._tls: Optional[ssl.SSLContext] = None

    @property
    def is_secure(self) -> bool:
        """Whether more than a name is shown to servers."""
        return self._login is not None or bool(self._token)

    def query(self) -> Dict[str, str]:
        """The parameters of every request's URL."""
        return {"user.name": self.user} if self.user else {}

    def act_for_user(self, host: str, port: int, target: str) -> str:
        """A request's target, with the user for whom the owner of the login acts there."""
        if (host.lower(), port) not in self._proxy_user_for:
            return target
        separator = "&" if "?" in target else "?"
        return f"{target}{separator}{urlencode({'doAs': self._proxy_user})}"

    def begin(self, host: str, port: int) -> Optional[Negotiation]:
        """The authentication of a new connection; :class:`ForeignServer` where none may be shown.

        The one place that decides who gets a login.
        """
        if self._login is not None:
            if not (self._is_configured(host, port) or self._is_node(host, port)):
                raise ForeignServer(
                    f"{host}:{port} gets no login, for the cluster does not name it: it is neither"
                    " a web server of the site's configuration nor a node that the"
                    " ResourceManager knows"
                )
            from tony_core.hadoop.kerberos import spnego

            return spnego.Negotiation(self._login, host)
        if self._token and (host.lower(), port) in self._token_for:
            return TokenFields(self._token)
        return None

    def _is_configured(self, host: str, port: int) -> bool:
        return is_one_of(host, port, self._login_for)

    def tls(self) -> ssl.SSLContext:
        """What a server's certificate is checked with; an OSError if it is unusable."""
        if self._tls is None:
            context = ssl.create_default_context()
            if self._authorities:
                context.load_verify_locations(cadata=self._authorities)
            self._tls = context
        return self._tls


class WebConnection:
    """A connection to a server, and what was proved on it; one exchange at a time.

    Raises OSError, ``http.client.HTTPException``, ValueError (an address that is none), and
    :class:`HadoopError` for a login that does not work or a server that has not proved itself.
    """

    def __init__(
        self,
        host: str,
        port: Optional[int],
        tls: bool,
        access: WebAccess,
        *,
        timeout_s: float = TIMEOUT_S,
        connect_s: float = CONNECT_S,
    ) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._negotiation: Optional[Negotiation] = None
        if tls:
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=connect_s, context=access.tls()
            )
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=connect_s)

    @property
    def sock(self) -> Any:
        """The socket; None while there is no connection."""
        return self._http.sock

    def close(self) -> None:
        """Close it; another request opens another one."""
        self._http.close()

    def request(
        self,
        method: str,
        target: str,
        fields: Mapping[str, str],
        body: Optional[bytes] = None,
        *,
        proof: str = "",
        timeout_s: Optional[float] = None,
    ) -> http.client.HTTPResponse:
        """Send a request; its answer.

        ``proof``: the body is secret. The server has to prove itself first, in the answer to a GET
        of this target; else :class:`ServerNotProved`.
        """
        seconds = self._timeout_s if timeout_s is None else timeout_s
        while True:
            if self._http.sock is None:
                self._negotiation = self._access.begin(self._http.host, self._http.port)
                self._http.connect()
            self._http.sock.settimeout(seconds)
            negotiation = self._negotiation
            if proof and negotiation is not None and not negotiation.ready:
                self._prove(negotiation, proof, fields)
            more = {} if negotiation is None else negotiation.fields()
            if "Cookie" in more and "Cookie" in fields:
                more = {**more, "Cookie": f"{fields['Cookie']}; {more['Cookie']}"}
            shown = self._access.act_for_user(self._http.host, self._http.port, target)
            self._http.request(method, shown, body, {**fields, **more})
            answer = self._http.getresponse()
            if negotiation is None or negotiation.check(answer.status, _lower(answer)):
                return answer
            answer.read(_LONGEST_REFUSAL)

    def _prove(self, negotiation: Negotiation, target: str, fields: Mapping[str, str]) -> None:
        with self.request("GET", target, fields) as answer:
            answer.read(_MAX_TEXT)
        where = f"{self._http.host}:{self._http.port}"
        if not negotiation.ready:
            raise ServerNotProved(f"{where} does not take this login (it answers {answer.status})")
        if self._http.sock is None:
            raise ServerNotProved(
                f"{where} closes each connection after one answer: a request with secrets in it"
                " cannot follow the server's proof"
            )


class WebResponse:
    """A response; closing it returns the connection."""

    def __init__(
        self,
        web: WebClient,
        key: _Key,
        connection: WebConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        self._web = web
        self._key = key
        self._connection = connection
        self._response = response
        self.status = response.status

    def read(self, most: int) -> bytes:
        """Some bytes, none at its end."""
        try:
            data = self._response.read1(most)
            if not data and self._response.length:
                raise http.client.IncompleteRead(data, self._response.length)
            if not data:
                self._response.close()  # at its end; only chunked ones notice it themselves
            return data
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise WebUnreachable(
                f"{self._key[1]} broke off its answer: {describe_error(error)}"
            ) from None

    def text(self, longest: int = _MAX_TEXT) -> bytes:
        """All of it, up to a length."""
        found: List[bytes] = []
        left = longest
        with self:
            while left > 0:
                piece = self.read(left)
                if not piece:
                    break
                found.append(piece)
                left -= len(piece)
        return b"".join(found)

    def json(self) -> Any:
        """All of it as JSON; ``None`` when it is something else."""
        try:
            return json.loads(self.text().decode("utf-8"), parse_constant=_no_number)
        except (ValueError, RecursionError):
            return None

    def close(self) -> None:
        """Nothing more of it is wanted."""
        if self._response.isclosed() and not self._response.will_close:
            self._web._back(self._key, self._connection)
        else:
            self._response.close()
            self._connection.close()

    def __enter__(self) -> WebResponse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WebClient:
    """A few servers, their connections kept; answers are streams. One thread at a time.

    A connection is used again once its answer was read to the end. An answer that is not read to
    its end is closed, since an answer may be a log of gigabytes.
    """

    def __init__(
        self,
        access: WebAccess,
        timeout_s: float = TIMEOUT_S,
        *,
        connect_s: Optional[float] = None,
    ) -> None:
        self.access = access
        self._timeout_s = timeout_s
        self._connect_s = timeout_s if connect_s is None else connect_s
        self._idle: OrderedDict[_Key, WebConnection] = OrderedDict()

    def get(self, address: str, target: str, *, tls: bool = False) -> WebResponse:
        """Ask ``HOST:PORT`` for a path. Redirects are the caller's matter.

        Raises :class:`WebUnreachable`; and a :class:`HadoopError` when there is no login, or the
        server has not proved who it is.
        """
        return self.request("GET", address, target, tls=tls)

    def request(
        self,
        method: str,
        address: str,
        target: str,
        body: Optional[bytes] = None,
        *,
        tls: bool = False,
        fields: Mapping[str, str] = {},
        proof: str = "",
    ) -> WebResponse:
        """Send a request that may be repeated; see :meth:`WebConnection.request`."""
        key = (tls, address)
        idle = self._idle.pop(key, None)
        if idle is not None:
            try:
                return self._request(key, idle, method, target, body, fields, proof)
            except WebUnreachable:
                pass  # closed by the server in the meantime
        return self._request(key, None, method, target, body, fields, proof)

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _request(
        self,
        key: _Key,
        idle: Optional[WebConnection],
        method: str,
        target: str,
        body: Optional[bytes],
        fields: Mapping[str, str],
        proof: str,
    ) -> WebResponse:
        connection = idle
        fields = {"Accept": "*/*", "User-Agent": "tony", **fields}
        try:
            connection = connection or self._connection(key)
            answer = connection.request(method, target, fields, body, proof=proof)
            return WebResponse(self, key, connection, answer)
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: odd names
            if connection is not None:
                connection.close()
            raise WebUnreachable(f"{key[1]} cannot be asked: {describe_error(error)}") from None
        except BaseException:
            if connection is not None:
                connection.close()
            raise

    def _connection(self, key: _Key) -> WebConnection:
        tls, address = key
        return WebConnection(
            address,
            None,
            tls,
            self.access,
            timeout_s=self._timeout_s,
            connect_s=self._connect_s,
        )

    def _back(self, key: _Key, connection: WebConnection) -> None:
        other = self._idle.pop(key, None)
        if other is not None and other is not connection:
            other.close()
        self._idle[key] = connection
        if len(self._idle) > _MAX_IDLE:
            self._idle.popitem(last=False)[1].close()


def is_one_of(host: str, port: int, servers: Tuple[Address, ...]) -> bool:
    """Whether it is one of these servers, which may call itself by another name."""
    named = [address.host.lower() for address in servers if address.port == port]
    if host.lower() in named:
        return True
    return any(_resolve(host) & _resolve(one) for one in named)


def describe_error(error: Exception) -> str:
    """The reason in an error of a connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted here ({error.verify_message}): {CA_FILE} in the site's"
            " core-site.xml names a file (PEM) with the authorities to trust"
        )
    return str(error) or type(error).__name__


def _pairs(addresses: Tuple[Address, ...]) -> FrozenSet[Tuple[str, int]]:
    return frozenset((address.host.lower(), address.port) for address in addresses)


def _resolve(host: str) -> Set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()


def _lower(answer: http.client.HTTPResponse) -> Dict[str, str]:
    """The header fields by name; several of a name are one list."""
    found: Dict[str, str] = {}
    for name, value in answer.getheaders():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _no_number(name: str) -> None:
    """Read what is no JSON (NaN, Infinity) as none."""
