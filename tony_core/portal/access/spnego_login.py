"""The login by Kerberos: SPNEGO, as the web pages of a secure Hadoop cluster ask for it.

The first request proves the user by a ticket for the portal's service (``HTTP/host@REALM``); a
session carries it on. The user's name is what the cluster makes of the principal
(``hadoop.security.auth_to_local``), and his groups are those of this machine.
"""

from __future__ import annotations

import base64
import binascii
from typing import Sequence, Tuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.kerberos import gssapi
from tony_core.hadoop.kerberos.acceptor import Acceptor
from tony_core.hadoop.kerberos.principals import Rule, parse_principal, parse_rules, short_name
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.portal.access.accounts import Accounts
from tony_core.portal.access.login import Identified
from tony_core.portal.access.refusal import Refused
from tony_core.portal.access.sessions import SessionCookie, Sessions
from tony_core.portal.settings import Settings
from tony_core.portal.viewer import Viewer

_CHALLENGE = {"www-authenticate": "Negotiate"}
_NTLM = b"NTLMSSP\0"
_LONGEST = 64 * 1024


class SpnegoLogin:
    """Logs in by a ticket."""

    can_log_out = False  # the browser would log in again at once

    def __init__(self, settings: Settings, accounts: Accounts, sessions: Sessions) -> None:
        """Raises GssError, LibraryMissing, HadoopError where no login can succeed."""
        login = settings.login
        self._acceptor = Acceptor(login.spnego_keytab, login.spnego_principal)
        self._acceptor.check()
        conf = SiteConfiguration.load()
        self._rules: Sequence[Rule] = parse_rules(conf.text("hadoop.security.auth_to_local"))
        self._realm = gssapi.default_realm()
        self._accounts = accounts
        self._sessions = sessions
        self._cookie = SessionCookie.of(settings)

    async def identify(self, request: Request) -> Identified:
        """Who asks, by his session or his ticket."""
        number = self._cookie.number(request)
        viewer = self._sessions.find(number)
        if viewer is not None:
            return Identified(viewer, f"session {number}")
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "negotiate":
            raise Refused(
                401,
                "log in by Kerberos: get a ticket (kinit), and let your browser use it here"
                " (docs/portal.md)",
                _CHALLENGE,
            )
        found, answer = await run_in_threadpool(self._accept, _decode(text))
        number = self._sessions.begin(found)
        proof = {"www-authenticate": f"Negotiate {base64.b64encode(answer).decode()}"}
        return Identified(found, f"session {number}", number, proof)

    def _accept(self, token: bytes) -> Tuple[Viewer, bytes]:
        try:
            found = self._acceptor.accept(token)
            principal = parse_principal(found.principal)
            name = short_name(principal, self._rules, self._realm)
        except gssapi.GssError as error:
            raise Refused(403, f"Kerberos refused the login: {error}") from None
        except HadoopError as error:
            raise Refused(403, str(error)) from None
        return self._accounts.viewer(name), found.answer


def _decode(text: str) -> bytes:
    """The token of a header; raises :class:`Refused`."""
    try:
        token = base64.b64decode(text.strip(), validate=True) if len(text) <= _LONGEST else b""
    except (binascii.Error, ValueError):
        token = b""
    if not token:
        raise Refused(400, "the header Authorization has no token of SPNEGO")
    if token.startswith(_NTLM):
        raise Refused(
            401,
            "the browser sent NTLM and no ticket: get a ticket (kinit), and open the portal by the"
            " name that its principal has",
            _CHALLENGE,
        )
    return token
