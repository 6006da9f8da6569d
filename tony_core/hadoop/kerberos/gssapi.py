"""A binding of the system's GSSAPI library (MIT Kerberos), as far as a client of Hadoop needs it.

The names are those of RFC 2744. The package ``gssapi`` has no wheel for Linux: it asks for a
compiler and Kerberos' headers. The library itself is on every machine with Kerberos.

A credential is acquired from a named store: a ticket cache, or a keytab with a cache in this
process's memory. What the process's environment names is never used, so one process can act for
several users. Calls may go to the KDC and wait for it: the caller sets the deadline.

Tried with MIT's library on Linux. Its header packs the structures otherwise on macOS.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import weakref
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

LIBRARY = "libgssapi_krb5.so.2"
_KRB5_LIBRARY = "libkrb5.so.3"

KRB5, SPNEGO = "krb5", "spnego"
"""The mechanisms: Kerberos itself, and the negotiation that HTTP uses."""

_OIDS = {
    KRB5: bytes.fromhex("2a864886f712010202"),
    SPNEGO: bytes.fromhex("2b0601050502"),
}
_PRINCIPAL = bytes.fromhex("2a864886f71201020201")  # name/host@REALM

_INITIATE = 1
_MUTUAL, _REPLAY, _SEQUENCE, _CONFIDENTIAL, _INTEGRITY = 2, 4, 8, 16, 32
_CONTINUE = 1
_ERROR_MASK = 0xFFFF0000
_OUT_OF_ORDER = 2 | 4 | 8 | 16  # of a message: again, old, too late, one before it is missing
_NO_CREDENTIAL, _EXPIRED = 7 << 16, 11 << 16
_GSS_CODE, _MECHANISM_CODE = 1, 2
_INDEFINITE = 0xFFFFFFFF


class LibraryMissing(Exception):
    """This machine has no GSSAPI library that can be used."""


class GssError(Exception):
    """A call failed; ``code`` is Kerberos' own error number, negative as in its headers."""

    def __init__(self, major: int, minor: int, text: str) -> None:
        super().__init__(text)
        self.major = major
        self.code = minor - (1 << 32) if minor >> 31 else minor

    @property
    def no_credential(self) -> bool:
        """Whether there is no credential to use."""
        return self.major & _ERROR_MASK == _NO_CREDENTIAL

    @property
    def expired(self) -> bool:
        """Whether the credential has expired."""
        return self.major & _ERROR_MASK == _EXPIRED


class _Buffer(ctypes.Structure):
    _fields_ = [("length", c_size_t), ("value", c_void_p)]


class _Oid(ctypes.Structure):
    _fields_ = [("length", c_uint32), ("elements", c_void_p)]


class _OidSet(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("elements", POINTER(_Oid))]


class _StoreElement(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class _Store(ctypes.Structure):
    _fields_ = [("count", c_uint32), ("elements", POINTER(_StoreElement))]


_SIGNATURES: Mapping[str, Tuple[Any, ...]] = {
    "gss_acquire_cred_from": (
        *(c_void_p, c_uint32, POINTER(_OidSet), c_int, POINTER(_Store)),
        *(POINTER(c_void_p), c_void_p, c_void_p),
    ),
    "gss_inquire_cred": (c_void_p, POINTER(c_void_p), POINTER(c_uint32), c_void_p, c_void_p),
    "gss_release_cred": (POINTER(c_void_p),),
    "gss_import_name": (POINTER(_Buffer), POINTER(_Oid), POINTER(c_void_p)),
    "gss_display_name": (c_void_p, POINTER(_Buffer), c_void_p),
    "gss_release_name": (POINTER(c_void_p),),
    "gss_init_sec_context": (
        *(c_void_p, POINTER(c_void_p), c_void_p, POINTER(_Oid), c_uint32, c_uint32, c_void_p),
        *(POINTER(_Buffer), c_void_p, POINTER(_Buffer), POINTER(c_uint32), c_void_p),
    ),
    "gss_delete_sec_context": (POINTER(c_void_p), c_void_p),
    "gss_wrap": (*(c_void_p, c_int, c_uint32, POINTER(_Buffer), POINTER(c_int), POINTER(_Buffer)),),
    "gss_unwrap": (c_void_p, POINTER(_Buffer), POINTER(_Buffer), POINTER(c_int), c_void_p),
    "gss_wrap_size_limit": (c_void_p, c_int, c_uint32, c_uint32, POINTER(c_uint32)),
    "gss_release_buffer": (POINTER(_Buffer),),
    "gss_display_status": (c_uint32, c_int, POINTER(_Oid), POINTER(c_uint32), POINTER(_Buffer)),
}
"""The arguments of each function, without the minor status that comes first."""

_found: List[Any] = []


def is_available() -> bool:
    """Whether this machine has the library."""
    try:
        _library()
    except LibraryMissing:
        return False
    return True


def _library() -> Any:
    """The loaded library; raises :class:`LibraryMissing`."""
    if not _found:
        for name in (LIBRARY, ctypes.util.find_library("gssapi_krb5")):
            if name is None:
                continue
            try:
                loaded = ctypes.CDLL(name)
                for function, arguments in _SIGNATURES.items():
                    getattr(loaded, function).argtypes = (POINTER(c_uint32), *arguments)
                    getattr(loaded, function).restype = c_uint32
            except (OSError, AttributeError):
                continue
            _found.append(loaded)
            break
        else:
            raise LibraryMissing(LIBRARY)
    return _found[0]


def _call(function: str, *arguments: Any) -> int:
    """Call a function; returns its major status, or raises :class:`GssError`."""
    minor = c_uint32()
    major = int(getattr(_library(), function)(byref(minor), *arguments))
    if major & _ERROR_MASK:
        raise GssError(major, minor.value, _describe(major, minor.value))
    return major


def _describe(major: int, minor: int) -> str:
    """The library's own words for a status: the mechanism's where it has some."""
    for code, kind in ((minor, _MECHANISM_CODE), (major, _GSS_CODE)):
        buffer, ignored, more = _Buffer(), c_uint32(), c_uint32()
        status = _library().gss_display_status(
            byref(ignored), code, kind, byref(_oid(KRB5)), byref(more), byref(buffer)
        )
        text = "" if status & _ERROR_MASK else _take(buffer).decode("utf-8", "replace").strip()
        if text and text.lower() not in ("unknown error", "success"):
            return text
    return f"status {major:#x}, {minor:#x}"


def _take(buffer: _Buffer) -> bytes:
    """The content of a buffer that the library has filled, which is released."""
    data = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
    _library().gss_release_buffer(byref(c_uint32()), byref(buffer))
    return data


def _given(data: bytes) -> _Buffer:
    """A buffer for the library to read; it holds a reference to the data."""
    buffer = _Buffer(len(data), ctypes.cast(c_char_p(data), c_void_p))
    buffer.data = data
    return buffer


_oids: Dict[bytes, _Oid] = {}


def _oid(name: str) -> _Oid:
    return _oid_of(_OIDS[name])


def _oid_of(data: bytes) -> _Oid:
    if data not in _oids:
        _oids[data] = _Oid(len(data), ctypes.cast(c_char_p(data), c_void_p))
    return _oids[data]


class _Handle:
    """An object of the library's, released with this one."""

    def __init__(self, release: str, *more: Any) -> None:
        self.pointer = c_void_p()
        self._end = weakref.finalize(self, _release, release, self.pointer, more)

    def release(self) -> None:
        """Release it now."""
        self._end()


def _release(function: str, pointer: c_void_p, more: Tuple[Any, ...]) -> None:
    if pointer.value:
        getattr(_library(), function)(byref(c_uint32()), byref(pointer), *more)


def _name(principal: str) -> _Handle:
    handle = _Handle("gss_release_name")
    kind = byref(_oid_of(_PRINCIPAL))
    _call("gss_import_name", byref(_given(principal.encode())), kind, handle.pointer)
    return handle


class Target(NamedTuple):
    """Who a server has to prove to be: a principal, or a service on a host.

    The host keeps its name (in lower case, as with Hadoop's own clients): were it replaced by what
    DNS says that it is, as the library does by default, who forges DNS would choose the server.
    """

    principal: str = ""
    service: str = ""  # "HTTP@host"

    def __str__(self) -> str:
        return self.principal or self.service.replace("@", "/")

    def name(self) -> str:
        """The principal; of a service with the realm that krb5.conf says its host is in."""
        if self.principal:
            return self.principal
        service, _, host = self.service.partition("@")
        return f"{service}/{host.lower()}@{realm_of_host(host)}"


class Credential:
    """A user's credential out of a store (``ccache``, ``client_keytab``)."""

    def __init__(self, store: Mapping[str, str], principal: str = "") -> None:
        """Raises :class:`GssError` when the store has none for the principal."""
        self._handle = _Handle("gss_release_cred")
        name = _name(principal) if principal else None
        pairs = [(key.encode(), value.encode()) for key, value in store.items()]
        elements = (_StoreElement * len(pairs))(*(_StoreElement(*pair) for pair in pairs))
        # Of each mechanism: what a context negotiates needs one for the negotiation, too.
        wanted = (_Oid * 2)(_oid(KRB5), _oid(SPNEGO))
        _call(
            "gss_acquire_cred_from",
            name.pointer if name else None,
            _INDEFINITE,
            byref(_OidSet(2, wanted)),
            _INITIATE,
            byref(_Store(len(pairs), elements)),
            byref(self._handle.pointer),
            None,
            None,
        )

    def inquire(self) -> Tuple[str, Optional[int]]:
        """The principal and the seconds left (None: without an end); may log in by a keytab."""
        name = _Handle("gss_release_name")
        lifetime = c_uint32()
        _call(
            "gss_inquire_cred",
            self._handle.pointer,
            byref(name.pointer),
            byref(lifetime),
            None,
            None,
        )
        buffer = _Buffer()
        _call("gss_display_name", name.pointer, byref(buffer), None)
        seconds = None if lifetime.value == _INDEFINITE else lifetime.value
        return _take(buffer).decode(), seconds


class SecurityContext:
    """The client's side of an authentication, and the protection of messages after it."""

    def __init__(self, credential: Credential, target: Target, mechanism: str = KRB5) -> None:
        self.credential = credential
        self._name = _name(target.name())
        self._oid = _oid(mechanism)
        self._handle = _Handle("gss_delete_sec_context", None)
        self._flags = 0
        self.complete = False

    @property
    def is_mutual(self) -> bool:
        """Whether the server has proved who it is."""
        return self.complete and bool(self._flags & _MUTUAL)

    def step(self, token: bytes = b"") -> bytes:
        """Take the server's token (none at first); returns ours, which may be empty."""
        output, flags = _Buffer(), c_uint32()
        status = _call(
            "gss_init_sec_context",
            self.credential._handle.pointer,
            byref(self._handle.pointer),
            self._name.pointer,
            byref(self._oid),
            _MUTUAL | _REPLAY | _SEQUENCE | _CONFIDENTIAL | _INTEGRITY,
            0,
            None,
            byref(_given(token)),
            None,
            byref(output),
            byref(flags),
            None,
        )
        self.complete = not status & _CONTINUE
        self._flags = flags.value
        return _take(output)

    def wrap(self, data: bytes, confidential: bool) -> bytes:
        """Sign a message, and encrypt it if it is confidential."""
        output, encrypted = _Buffer(), c_int()
        _call(
            "gss_wrap",
            self._handle.pointer,
            int(confidential),
            0,
            byref(_given(data)),
            byref(encrypted),
            byref(output),
        )
        if confidential and not encrypted.value:
            raise GssError(0, 0, "the library did not encrypt a message")
        return _take(output)

    def unwrap(self, token: bytes) -> Tuple[bytes, bool]:
        """The server's next message, and whether it was encrypted."""
        output, encrypted = _Buffer(), c_int()
        status = _call(
            "gss_unwrap",
            self._handle.pointer,
            byref(_given(token)),
            byref(output),
            byref(encrypted),
            None,
        )
        message = _take(output)
        if status & _OUT_OF_ORDER:  # which is no error to the library
            raise GssError(status, 0, "it came twice, or one before it is missing")
        return message, bool(encrypted.value)

    def size_limit(self, confidential: bool, longest: int) -> int:
        """The bytes that fit into a wrapped message of at most ``longest``."""
        limit = c_uint32()
        _call(
            "gss_wrap_size_limit", self._handle.pointer, int(confidential), 0, longest, byref(limit)
        )
        return limit.value


# ------------------------------------------------------------------ krb5.conf


def default_ticket_cache() -> str:
    """The cache that the system names for this process's user; raises :class:`LibraryMissing`."""
    return _ask_krb5(lambda krb5, context: _text(krb5.krb5_cc_default_name, context))


def default_realm() -> str:
    """The realm that krb5.conf names; empty if there is none."""

    def ask(krb5: Any, context: c_void_p) -> str:
        realm = c_char_p()
        if krb5.krb5_get_default_realm(context, byref(realm)):
            return ""
        text = (realm.value or b"").decode()
        krb5.krb5_free_default_realm(context, realm)
        return text

    return _ask_krb5(ask)


def realm_of_host(host: str) -> str:
    """The realm that krb5.conf says a host is in; empty where the KDC has to know."""

    def ask(krb5: Any, context: c_void_p) -> str:
        realms = POINTER(c_char_p)()
        if krb5.krb5_get_host_realm(context, host.encode(), byref(realms)):
            return ""
        text = (realms[0] or b"").decode()
        krb5.krb5_free_host_realm(context, realms)
        return text

    return _ask_krb5(ask)


def _ask_krb5(ask: Callable[[Any, c_void_p], str]) -> str:
    try:
        krb5 = ctypes.CDLL(_KRB5_LIBRARY)
    except OSError:
        raise LibraryMissing(_KRB5_LIBRARY) from None
    context = c_void_p()
    if krb5.krb5_init_context(byref(context)):
        return ""  # krb5.conf cannot be read: the first login says so
    try:
        return ask(krb5, context)
    finally:
        krb5.krb5_free_context(context)


def _text(function: Any, context: c_void_p) -> str:
    function.restype = c_char_p
    return (function(context) or b"").decode()
