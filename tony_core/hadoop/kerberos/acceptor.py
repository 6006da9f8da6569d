"""The server's side of GSSAPI, for a web server that users log in to by SPNEGO.

The keys are a keytab's, read anew for each login: a keytab that is replaced holds from the next
one on. The library remembers the tickets' proofs that it has seen (its replay cache) and refuses
one that comes again.
"""

from __future__ import annotations

from ctypes import POINTER, byref, c_uint32, c_void_p
from typing import Any, NamedTuple

from tony_core.hadoop.kerberos import gssapi
from tony_core.hadoop.kerberos.gssapi import GssError

_ACCEPT = 2
_CONTINUE = 1
_INDEFINITE = 0xFFFFFFFF
_SIGNATURE = (
    *(POINTER(c_void_p), c_void_p, POINTER(gssapi._Buffer), c_void_p, POINTER(c_void_p)),
    *(c_void_p, POINTER(gssapi._Buffer), POINTER(c_uint32), c_void_p, c_void_p),
)


class Accepted(NamedTuple):
    """A login: who it is, and what proves to him who we are."""

    principal: str
    answer: bytes


class Acceptor:
    """Accepts logins to a service."""

    def __init__(self, keytab: str, principal: str = "") -> None:
        """``principal`` is the service; without one, any whose keys the keytab has."""
        self._keytab = keytab
        self._principal = principal

    def check(self) -> None:
        """Raise :class:`GssError` where the keytab has no keys of the service."""
        self._credential().release()

    def accept(self, token: bytes) -> Accepted:
        """A client's login of one token; raises :class:`GssError` for any other."""
        accept = _function()
        credential = self._credential()
        context = gssapi._Handle("gss_delete_sec_context", None)
        name = gssapi._Handle("gss_release_name")
        output, flags, minor = gssapi._Buffer(), c_uint32(), c_uint32()
        major = int(
            accept(
                *(byref(minor), byref(context.pointer), credential.pointer),
                *(byref(gssapi._given(token)), None, byref(name.pointer), None),
                *(byref(output), byref(flags), None, None),
            )
        )
        answer = gssapi._take(output)
        if major & gssapi._ERROR_MASK:
            raise GssError(major, minor.value, gssapi._describe(major, minor.value))
        if major & _CONTINUE:
            raise GssError(major, 0, "the login needs more than one step, which is not supported")
        shown = gssapi._Buffer()
        gssapi._call("gss_display_name", name.pointer, byref(shown), None)
        return Accepted(gssapi._take(shown).decode(), answer)

    def _credential(self) -> gssapi._Handle:
        handle = gssapi._Handle("gss_release_cred")
        name = gssapi._name(self._principal) if self._principal else None
        pair = gssapi._StoreElement(b"keytab", f"FILE:{self._keytab}".encode())
        elements = (gssapi._StoreElement * 1)(pair)
        gssapi._call(
            "gss_acquire_cred_from",
            name.pointer if name else None,
            _INDEFINITE,
            None,
            _ACCEPT,
            byref(gssapi._Store(1, elements)),
            byref(handle.pointer),
            None,
            None,
        )
        return handle


def _function() -> Any:
    function = gssapi._library().gss_accept_sec_context
    function.argtypes = (POINTER(c_uint32), *_SIGNATURE)
    function.restype = c_uint32
    return function
