"""A user's login to Kerberos: a ticket cache (after ``kinit``), or a keytab.

A :class:`Login` says where the credential is, and acquires it anew for each connection: so a ticket
that was renewed meanwhile, or a keytab that was replaced, is used from the next connection on, and
a process can hold the logins of many users. A keytab's tickets stay in this process's memory.

The library waits for a KDC that does not answer as krb5.conf says, which may be minutes; the call
is left to itself in its thread after :data:`KDC_S`.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from tony_core.hadoop.errors import (
    AuthenticationError,
    ConfigurationError,
    HadoopError,
    KdcUnreachable,
    LoginError,
    NoTicket,
)
from tony_core.hadoop.kerberos import gssapi
from tony_core.hadoop.kerberos.gssapi import (
    KRB5,
    Credential,
    GssError,
    LibraryMissing,
    SecurityContext,
    Target,
)
from tony_core.hadoop.kerberos.keytab import NoKeytab, read_principals
from tony_core.hadoop.kerberos.ticket_cache import (
    NoCache,
    cache_files,
    find_owner_problem,
    read_cache,
)

KDC_S = 15.0
"""How long a call may wait for the KDC."""

CACHE_VARIABLE = "KRB5CCNAME"
CONFIGURATION_VARIABLE = "KRB5_CONFIG"

_T = TypeVar("_T")

_BASE = -1765328384  # of Kerberos' own error numbers (krb5.h)
_WEB = "HTTP/"  # the principal of a web server: this and its host
_SERVER_UNKNOWN = _BASE + 7
_EXPIRED = _BASE + 32
_KDC_UNREACHABLE = _BASE + 156
_NO_CREDENTIAL = (_BASE + 140, _BASE + 141, _BASE + 142, _BASE + 181, _BASE + 194, _BASE + 195,
                  _BASE + 199, _BASE + 243)  # fmt: skip

_CONFIGURATION = (
    "Kerberos is not configured on this machine ({words}): install the site's /etc/krb5.conf, or"
    " name the file by KRB5_CONFIG"
)
_MISSING_CONFIGURATION = (
    "KRB5_CONFIG names {file}, which cannot be read ({reason}): correct the path or its"
    " permissions, or unset KRB5_CONFIG to use /etc/krb5.conf"
)
_REALM = (
    "krb5.conf names no KDC of the realm ({words}): add the realm to it, or name the site's"
    " krb5.conf by KRB5_CONFIG"
)
_SKEW = (
    "this machine's clock differs too much from that of Kerberos ({words}): set it by NTP, and the"
    " server's"
)
_UNKNOWN_WEB_SERVER = (
    "the KDC does not know the service {target} ({words}): its principal has another name than the"
    " site's configuration or DNS gives the host, or is missing; correct {host} in the site's"
    " configuration (reverse DNS is not asked), or ask the administrator of Kerberos for the"
    " principal"
)
_REFUSED = "the KDC refuses {who} ({words}): ask the administrator of Kerberos"
_KEYS = (
    "the keys of {who} in {where} are not those of the KDC ({words}): get a new keytab, or name"
    " another one by --keytab"
)
_NO_ENCRYPTION = (
    "this machine and the KDC have no type of encryption in common ({words}): ask the"
    " administrator of Kerberos (permitted_enctypes in krb5.conf)"
)

_SENTENCES: Dict[int, str] = {
    # The client.
    _BASE + 1: _REFUSED,  # the account has expired
    _BASE + 6: "the KDC does not know {who} ({words}): correct the principal or its realm",
    _BASE + 12: _REFUSED,  # policy
    _BASE + 14: _NO_ENCRYPTION,
    _BASE + 18: _REFUSED,  # locked
    _BASE + 23: "the password of {who} has expired: change it by kpasswd, and get a new keytab",
    _BASE + 24: _KEYS,
    _BASE + 31: _KEYS,
    _BASE + 240: _NO_ENCRYPTION,
    # The server.
    _BASE + 2: "the KDC refuses {target} ({words}): ask the administrator of Kerberos",
    _SERVER_UNKNOWN: (
        "the KDC does not know the service {target} ({words}): correct the principal, or the host's"
        " name, in the site's configuration (names are taken as they are written there; reverse DNS"
        " is not asked)"
    ),
    _BASE + 35: "{target} takes no ticket of {who} ({words}): ask the cluster's administrator",
    _BASE + 41: (
        "{target} has another key than the KDC ({words}): run kinit again; if that does not help,"
        " its administrator renews its keytab"
    ),
    # The machine.
    _BASE + 37: _SKEW,
    _BASE + 148: _SKEW,
    _BASE + 135: _CONFIGURATION,
    _BASE + 136: _CONFIGURATION,
    _BASE + 224: _CONFIGURATION,
    _BASE + 154: _REALM,
    _BASE + 220: _REALM,
}
"""What to say of Kerberos' own error numbers: what is wrong, and what to do."""

_WITHOUT_CONFIGURATION = (
    errno.EACCES,
    *(code for code, known in _SENTENCES.items() if known in (_CONFIGURATION, _REALM)),
)
"""What the library reports when it cannot read its configuration: it goes on without a file that
is missing, and has no realm then."""


class Login:
    """Who to log in as, and by what; equal ones have the same source."""

    def __init__(self, source: Mapping[str, str], where: str, principal: str = "") -> None:
        self._source = dict(source)
        self._wanted = principal
        self.where = where  # for messages: the cache or keytab
        self._principal = principal
        self._keytab = ""
        self._may_be_anyones = False  # it was not named: other users can write in /tmp

    @classmethod
    def from_ticket_cache(cls, cache: str = "", env: Optional[Mapping[str, str]] = None) -> Login:
        """The tickets of a cache; by default of KRB5CCNAME, then of the system's default."""
        env = os.environ if env is None else env
        named = cache or env.get(CACHE_VARIABLE, "")
        name = named or _default_cache()
        login = cls({"ccache": name}, f"the ticket cache {name}")
        login._may_be_anyones = not named
        return login

    @classmethod
    def from_keytab(cls, principal: str, keytab: str, where: str = "") -> Login:
        """The keys of a principal; raises :class:`LoginError` if the file cannot be read.

        ``where`` stands for the path in messages.
        """
        path = os.path.abspath(os.path.expanduser(keytab))
        where = where or f"the keytab {path}"
        if "@" not in principal:
            realm = gssapi.default_realm() if gssapi.is_available() else ""
            missing = "" if realm else _find_configuration_problem()
            if missing:
                raise LoginError(missing)
            principal = f"{principal}@{realm}" if realm else principal
        problem = _find_keytab_problem(path, principal, where)
        if problem:
            raise LoginError(problem)
        # The name holds what makes the tickets: a process logs in once for each.
        cache = f"MEMORY:tony-{principal}-{path}".replace(" ", "_")
        login = cls({"client_keytab": f"FILE:{path}", "ccache": cache}, where, principal)
        login._keytab = path
        return login

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Login) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Login({self.where})"

    def _key(self) -> Tuple[object, ...]:
        return (tuple(sorted(self._source.items())), self._wanted)

    @property
    def is_keytab(self) -> bool:
        """Whether it can log in by itself again and again."""
        return bool(self._keytab)

    @property
    def keytab(self) -> str:
        """The path of the keytab; empty for a ticket cache."""
        return self._keytab

    @property
    def cache(self) -> str:
        """The name of the ticket cache; empty for a keytab."""
        return "" if self.is_keytab else self._source["ccache"]

    @property
    def files(self) -> Tuple[str, ...]:
        """The files of this machine that hold its keys or tickets, as far as they are files."""
        return (self._keytab,) if self.is_keytab else tuple(cache_files(self.cache))

    @property
    def principal(self) -> str:
        """The full name, ``ann@REALM``; logs in if that is needed to know it."""
        if not self._principal:
            self.check()
        return self._principal

    def check(self) -> Optional[int]:
        """Log in; the seconds until the ticket expires. Raises :class:`LoginError`."""

        def inquire() -> Tuple[str, Optional[int]]:
            return self._acquire().inquire()

        name, seconds = self._with_kdc(inquire, "")
        if seconds == 0:
            raise self._expired()
        self._principal = name
        return seconds

    def new_context(self, target: Target, mechanism: str = KRB5) -> LoginContext:
        """A context for a server; raises :class:`LoginError` when there is no credential."""

        def make() -> SecurityContext:
            return SecurityContext(self._acquire(), target, mechanism)

        return LoginContext(self, self._with_kdc(make, str(target)), target, mechanism)

    def authenticate(self, principal: str) -> LoginContext:
        """A context for a server that has to be a principal (RPC)."""
        if not principal:
            raise ConfigurationError(
                "the site's configuration does not name the server's principal, which Kerberos"
                " needs (yarn.resourcemanager.principal, dfs.namenode.kerberos.principal)"
            )
        return self.new_context(Target(principal=principal))

    def _acquire(self) -> Credential:
        if self._may_be_anyones:
            problem = find_owner_problem(self.cache)
            if problem:
                raise LoginError(problem)
        return Credential(self._source, self._wanted)

    # ------------------------------------------------------------------ calls and errors

    def _with_kdc(
        self, work: Callable[[], _T], target: str, diagnose: Optional[Callable[[], object]] = None
    ) -> _T:
        """Call what may wait for the KDC; its errors in our words.

        ``diagnose`` does the same thing with Kerberos alone: the numbers of the negotiation's
        errors are not Kerberos' own.
        """
        try:
            try:
                return _within(KDC_S, work)
            except GssError:
                if diagnose is not None:
                    _within(KDC_S, diagnose)
                raise
        except TimeoutError:
            raise KdcUnreachable(
                f"no KDC has answered within {KDC_S:g} s: check the network to the KDCs that"
                " krb5.conf names"
            ) from None
        except LibraryMissing:
            raise LoginError(
                "this machine has no GSSAPI library for Kerberos"
                f" ({gssapi.LIBRARY}): install it (apt-get install libgssapi-krb5-2 krb5-user, or"
                " dnf install krb5-libs krb5-workstation)"
            ) from None
        except GssError as error:
            raise self._translate(error, target) from None

    def _translate(self, error: GssError, target: str) -> HadoopError:
        """An error of the library in one sentence."""
        words = str(error).rstrip(".")
        if error.code == _KDC_UNREACHABLE:
            return KdcUnreachable(
                f"no KDC can be reached ({words}): check the network to the KDCs that krb5.conf"
                " names"
            )
        if error.code == _EXPIRED or error.expired:
            return self._expired()
        if error.code in _WITHOUT_CONFIGURATION:
            missing = _find_configuration_problem()
            if missing:
                return LoginError(missing)
        if error.code == _SERVER_UNKNOWN and target.startswith(_WEB) and "@" not in target:
            return LoginError(_explain_unknown_web_server(target, words))
        if error.code == _SERVER_UNKNOWN and "krbtgt/" in words:
            realm = target.rpartition("@")[2]
            return LoginError(
                f"the KDC leads to no realm {realm} ({words}): log in as a principal of that realm,"
                " or correct the principal in the site's configuration"
            )
        if error.code in _SENTENCES:
            who, where = self._principal or self._owner() or "you", self.where
            known = _SENTENCES[error.code]
            if known is _KEYS and not self.is_keytab:
                known = _REFUSED
            sentence = known.format(who=who, where=where, target=target or "it", words=words)
            return NoTicket(sentence) if known is _KEYS else LoginError(sentence)
        if error.code in _NO_CREDENTIAL or error.no_credential:
            if self.is_keytab:
                problem = _find_keytab_problem(self._keytab, self._wanted, self.where)
                return LoginError(problem or f"{self.where} gives no ticket ({words})")
            return NoTicket(
                f"there is no Kerberos ticket in {self.where}: get one by kinit, or name a keytab"
                " (--principal, --keytab)"
            )
        return LoginError(f"Kerberos refuses{f' {target}' if target else ''}: {words}")

    def _owner(self) -> str:
        """The principal of a ticket cache, as far as its file says it."""
        try:
            found = read_cache(self.cache) if self.cache else None
        except (OSError, NoCache):
            return ""
        return found.principal if found else ""

    def _expired(self) -> LoginError:
        who = self._principal or self._owner()
        return NoTicket(
            f"the Kerberos ticket{f' of {who}' if who else ''} in {self.where} has expired: get a"
            " new one by kinit",
            has_expired=True,
        )


class LoginContext:
    """A :class:`SecurityContext` whose errors are :class:`LoginError`."""

    def __init__(
        self, login: Login, context: SecurityContext, target: Target, mechanism: str
    ) -> None:
        self._login = login
        self._context = context
        self._target = target
        self._mechanism = mechanism
        self.target = str(target)
        self._has_begun = False

    @property
    def complete(self) -> bool:
        """Whether nothing more is to be sent."""
        return self._context.complete

    @property
    def is_mutual(self) -> bool:
        """Whether the server has proved who it is."""
        return self._context.is_mutual

    def step(self, token: bytes = b"") -> bytes:
        """Take the server's token (none at first); returns ours, which may be empty.

        Raises :class:`AuthenticationError` if the token does not prove who the server is.
        """
        if not self._has_begun:
            self._has_begun = True
            negotiates = self._mechanism != KRB5
            diagnose = self._diagnose if negotiates else None
            return self._login._with_kdc(self._context.step, self.target, diagnose)
        try:
            return self._context.step(token)
        except GssError as error:
            # What answers may be any program, so that its words end nothing.
            known = self._login._translate(error, self.target)
            raise AuthenticationError(
                f"the server has not proved that it is {self.target}: {known}"
            ) from None

    def _diagnose(self) -> None:
        SecurityContext(self._context.credential, self._target, KRB5).step()

    def wrap(self, data: bytes, confidential: bool) -> bytes:
        """Sign a message, and encrypt it if it is confidential."""
        try:
            return self._context.wrap(data, confidential)
        except GssError as error:
            raise AuthenticationError(f"a message could not be protected: {error}") from None

    def unwrap(self, token: bytes) -> Tuple[bytes, bool]:
        """A message of the server's, and whether it was encrypted."""
        try:
            return self._context.unwrap(token)
        except GssError as error:
            raise AuthenticationError(
                f"a message was altered on its way, or is out of its order: {error}"
            ) from None

    def size_limit(self, confidential: bool, longest: int) -> int:
        """The bytes that fit into a wrapped message of at most ``longest``."""
        return self._context.size_limit(confidential, longest)


def _explain_unknown_web_server(target: str, words: str) -> str:
    """Why the KDC has no ticket for ``HTTP/host``.

    For a host that krb5.conf puts into no realm the library guesses one by the domain, and reports
    in the end that the KDC does not know that realm: what is wrong is the host's name.
    """
    host = target[len(_WEB) :]
    realm = gssapi.realm_of_host(host) if "krbtgt/" in words else ""
    if realm:
        return (
            f"the KDC leads to no realm {realm} ({words}): log in as a principal of that realm, or"
            f" correct the realm of {host} in krb5.conf ([domain_realm])"
        )
    return _UNKNOWN_WEB_SERVER.format(target=target, host=host, words=words)


def _find_configuration_problem() -> str:
    """Why no file that KRB5_CONFIG names can be read; empty if one can, or it names none."""
    problem = ""
    for name in filter(None, os.environ.get(CONFIGURATION_VARIABLE, "").split(":")):
        try:
            with open(name, "rb"):
                return ""  # the library goes on with the files that it can read
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            problem = problem or _MISSING_CONFIGURATION.format(file=name, reason=reason)
    return problem


def _find_keytab_problem(path: str, principal: str, where: str) -> str:
    """Why a keytab holds no keys of a principal; empty if it does."""
    try:
        with open(path, "rb") as file:
            held = read_principals(file.read())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return f"{where} cannot be read ({reason}): correct the path or its permissions"
    except NoKeytab as error:
        return f"{where} cannot be used, for {error}: get a new one"
    if principal in held:
        return ""
    if not held:
        return f"{where} is empty: get a new one"
    return (
        f"{where} has no keys of {principal}: name a principal that it has by --principal"
        f" ({', '.join(held[:5])}{', ...' if len(held) > 5 else ''})"
    )


def _default_cache() -> str:
    """The user's cache when no variable names one; the library itself would ask ours."""
    if not os.environ.get(CACHE_VARIABLE):
        try:
            name = gssapi.default_ticket_cache()
        except LibraryMissing:
            name = ""  # said at the login
        if name:
            return name
    return f"FILE:/tmp/krb5cc_{os.getuid()}"


def _within(seconds: float, work: Callable[[], _T]) -> _T:
    """Call in a thread that is left to itself after some seconds (TimeoutError)."""
    results: List[_T] = []
    errors: List[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # to the caller, whatever it is
            errors.append(error)

    thread = threading.Thread(target=run, name="kerberos", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]
