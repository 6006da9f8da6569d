"""Authentication to web servers by SPNEGO (RFC 4559), as Hadoop's expect it of a Kerberos user.

Each connection begins with a handshake in its first request: ``Authorization: Negotiate TOKEN``,
without waiting for the server to ask. The answer has the server's proof in ``WWW-Authenticate``;
without it, nothing of the answer is believed, but for a refusal (401). Further requests on the same
connection carry the cookie that the server gave. Another connection may lead to another program,
so it begins anew; no cookie goes there.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Dict, Mapping, Optional

from tony_core.hadoop.errors import AuthenticationError, LoginError
from tony_core.hadoop.kerberos.gssapi import SPNEGO, Target
from tony_core.hadoop.kerberos.login import Login, LoginContext

UNAUTHORIZED = 401

_NEGOTIATE = "negotiate"
_COOKIE = re.compile(r"(?:^|[,;\s])hadoop\.auth=(\"[!#-~]+\"|[!#-+\--:<-~]+)")


class Negotiation:
    """The authentication of one connection to a web server."""

    def __init__(self, login: Login, host: str) -> None:
        self._login = login
        self._host = host
        self._context: Optional[LoginContext] = None
        self._cookie = ""
        self.ready = False  # the server has proved who it is

    def fields(self) -> Dict[str, str]:
        """The header fields of the next request; raises :class:`LoginError`."""
        if self._cookie:
            return {"Cookie": self._cookie}
        self.ready = False
        target = Target(service=f"HTTP@{self._host}")
        self._context = self._login.new_context(target, SPNEGO)
        token = base64.b64encode(self._context.step()).decode("ascii")
        return {"Authorization": f"Negotiate {token}"}

    def check(self, status: int, headers: Mapping[str, str]) -> bool:
        """Check an answer (names of headers in lower case); False: ask again, it was refused.

        Raises :class:`AuthenticationError` if the server has not proved who it is.
        """
        context, self._context = self._context, None
        if status == UNAUTHORIZED:
            asks_again = bool(self._cookie)  # which has expired
            self._cookie = ""
            return not asks_again
        if context is None:
            return True  # the connection has been proved
        proof = _read_proof(headers.get("www-authenticate", ""))
        if proof is None:
            raise AuthenticationError(
                f"the web server of {self._host} has not proved that it is {context.target}: its"
                f" answer ({status}) has no WWW-Authenticate: Negotiate. Another program answers"
                " there, it lacks this principal's key, or it does not use Kerberos (then the"
                " site's configuration says: hadoop.http.authentication.type=simple)"
            )
        try:
            context.step(proof)
        except LoginError as error:
            raise AuthenticationError(
                f"the web server of {self._host} has not proved that it is {context.target}:"
                f" {error}"
            ) from None
        if not context.is_mutual:
            raise AuthenticationError(
                f"the web server of {self._host} has not proved that it is {context.target}"
            )
        self.ready = True
        found = _COOKIE.search(headers.get("set-cookie", ""))
        self._cookie = f"hadoop.auth={found[1]}" if found else ""
        return True


def _read_proof(header: str) -> Optional[bytes]:
    """The server's token in ``WWW-Authenticate``; None if there is none."""
    for part in header.split(","):
        scheme, _, token = part.strip().partition(" ")
        if scheme.lower() == _NEGOTIATE and token:
            try:
                return base64.b64decode(token.strip(), validate=True)
            except binascii.Error:
                return None
    return None
