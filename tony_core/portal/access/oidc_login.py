"""The login by an identity provider: OpenID Connect, the authorization code flow with PKCE.

``/login`` sends the browser to the provider, with a state, a nonce and a code challenge that only
this browser's cookie can answer for; ``/login/callback`` takes the code, exchanges it with the
provider itself, and checks the identity token: its signature, issuer, audience, time and nonce.
The protocol is authlib's. A callback without the cookie of its state is refused, so no other person
can log a browser in under his own name.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Dict, List, Mapping, Tuple
from urllib.parse import quote

from authlib.integrations.starlette_client import OAuth
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tony_core.portal.access.accounts import Accounts
from tony_core.portal.access.login import Identified
from tony_core.portal.access.origins import safe_target
from tony_core.portal.access.refusal import Answered, Refused, wants_json
from tony_core.portal.access.sessions import SessionCookie, Sessions
from tony_core.portal.settings import Settings

LOGIN, CALLBACK = "/login", "/login/callback"
LOGIN_S = 600  # from the provider's page back to the portal
PROVIDER_S = 10.0
_LONGEST_SECRET = 4096
_SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Of identity tokens: with a private key of the provider's, never with a shared one or none."""


class OidcLogin:
    """Logs in by an identity provider."""

    can_log_out = True

    def __init__(
        self, settings: Settings, accounts: Accounts, sessions: Sessions, secret: str
    ) -> None:
        login = settings.login
        self._issuer = login.oidc_issuer.rstrip("/")
        self._client_id = login.oidc_client_id
        self._user_claim, self._groups_claim = login.oidc_user_claim, login.oidc_groups_claim
        self._callback = f"{settings.url}{CALLBACK}"
        self._accounts = accounts
        self._sessions = sessions
        self._cookie = SessionCookie.of(settings)
        self._is_secure = settings.uses_https
        self._pending = URLSafeTimedSerializer(secrets.token_bytes(32), "login")
        scopes = dict.fromkeys(("openid", *login.oidc_scopes))
        self._provider: Any = OAuth().register(
            "provider",
            client_id=login.oidc_client_id,
            client_secret=secret,
            server_metadata_url=f"{self._issuer}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(scopes),
                "code_challenge_method": "S256",
                "timeout": PROVIDER_S,
            },
        )

    async def identify(self, request: Request) -> Identified:
        """Who asks, by his session; without one, the way to the provider."""
        path = request.url.path
        if path == LOGIN and request.method == "GET":
            raise Answered(await self._send_to_provider(request))
        if path == CALLBACK and request.method == "GET":
            raise Answered(*await self._log_in(request))
        number = self._cookie.number(request)
        viewer = self._sessions.find(number)
        if viewer is not None:
            return Identified(viewer, f"session {number}")
        if request.method != "GET" or wants_json(request):
            raise Refused(401, "log in first: open the portal in a browser")
        query = f"?{request.url.query}" if request.url.query else ""
        target = quote(request.url.path + query, safe="/")
        raise Answered(RedirectResponse(f"{LOGIN}?next={target}", 303))

    # ------------------------------------------------------------------ to the provider

    async def _send_to_provider(self, request: Request) -> Response:
        pending: Dict[str, Any] = {}
        request.scope["session"] = pending  # authlib puts there what the callback has to match
        try:
            await self._load_metadata()
            response: Response = await self._provider.authorize_redirect(request, self._callback)
        except Exception as error:  # of authlib, of joserfc, of the HTTP client that it found
            raise _unavailable(error) from None
        (key,) = pending
        state = key.rpartition("_state_provider_")[2]
        kept = {"pending": pending, "next": safe_target(request.query_params.get("next"))}
        response.set_cookie(
            self._pending_cookie(state),
            self._pending.dumps(kept),
            max_age=LOGIN_S,
            path=CALLBACK,
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )
        return response

    def _pending_cookie(self, state: str) -> str:
        """Each login has a cookie of its own, so that two tabs can log in at a time."""
        digest = hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return f"{'__Secure-' if self._is_secure else ''}tony-portal-login-{digest}"

    async def _load_metadata(self) -> None:
        metadata = await self._provider.load_server_metadata()
        named = str(metadata.get("issuer", ""))
        if named.rstrip("/") != self._issuer:
            metadata.pop("_loaded_at", None)
            raise ValueError(f"it calls itself {named[:200]}, and not {self._issuer}")
        supported = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        kept = [name for name in supported if name in _SIGNATURES]
        metadata["id_token_signing_alg_values_supported"] = kept or ["RS256"]

    # ------------------------------------------------------------------ and back

    async def _log_in(self, request: Request) -> Tuple[Response, str]:
        """The way to the page that was asked for, with a session; and whose it is."""
        cookie = self._pending_cookie(request.query_params.get("state", ""))
        try:
            kept = self._pending.loads(request.cookies.get(cookie, ""), max_age=LOGIN_S)
        except BadSignature:
            raise Refused(
                400,
                "this login was not begun in this browser, or it took longer than"
                f" {LOGIN_S // 60} minutes, or the portal was restarted: open the portal again",
            ) from None
        request.scope["session"] = kept["pending"]
        refused = request.query_params.get("error")
        if refused:
            words = _plain(f"{refused} {request.query_params.get('error_description', '')}")
            raise Refused(403, f"the identity provider refused the login: {words}")
        try:
            await self._load_metadata()
            options = {
                "iss": {"essential": True, "value": self._provider.server_metadata["issuer"]},
                "aud": {"essential": True, "value": self._client_id},
            }
            token = await self._provider.authorize_access_token(request, claims_options=options)
            claims = token.get("userinfo")
            if not claims:
                raise ValueError("it sent no identity token")
            claims = await self._complete(token, dict(claims))
        except Exception as error:  # of authlib, of joserfc, of the HTTP client that it found
            raise _unavailable(error) from None
        name, groups = read_claims(claims, self._user_claim, self._groups_claim)
        viewer = self._accounts.viewer(name, groups)
        self._sessions.end(self._cookie.number(request))
        response = RedirectResponse(kept["next"], 303)
        response.headers.append("set-cookie", self._cookie.header(self._sessions.begin(viewer)))
        response.delete_cookie(cookie, CALLBACK, secure=self._is_secure, httponly=True)
        return response, viewer.name

    async def _complete(self, token: Any, claims: Dict[str, Any]) -> Mapping[str, Any]:
        """The claims, with those that the provider gives at its userinfo endpoint only."""
        wanted = (self._user_claim, self._groups_claim)
        endpoint = self._provider.server_metadata.get("userinfo_endpoint")
        if all(name in claims for name in wanted) or not endpoint:
            return claims
        more = await self._provider.userinfo(token=token)
        if more.get("sub") != claims["sub"]:
            raise ValueError("its userinfo endpoint names another user than its identity token")
        return {**more, **claims}


def read_claims(
    claims: Mapping[str, Any], user_claim: str, groups_claim: str
) -> Tuple[str, List[str]]:
    """The user's name and groups; raises :class:`Refused`."""
    name = claims.get(user_claim)
    if not isinstance(name, str) or not name:
        raise Refused(
            403,
            f"the identity provider gives no {user_claim} for this user (user-claim in the portal's"
            f" settings); it gives: {_plain(', '.join(sorted(map(str, claims))))}",
        )
    if user_claim == "email" and claims.get("email_verified") is not True:
        raise Refused(403, "the identity provider has not verified this user's e-mail address")
    found = claims.get(groups_claim, [])
    groups = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return name, [group for group in groups if isinstance(group, str)]


def read_secret(path: str) -> str:
    """The client's secret; raises OSError, ValueError."""
    with open(path, encoding="utf-8") as file:
        secret = file.read(_LONGEST_SECRET + 1).strip()
    if not secret or len(secret) > _LONGEST_SECRET or not secret.isprintable():
        raise ValueError("it is not one line with a secret")
    return secret


def _unavailable(error: BaseException) -> Refused:
    kind = type(error).__name__
    return Refused(502, f"the login at the identity provider failed: {kind}: {_plain(str(error))}")


def _plain(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text[:300]).strip()
