"""The server's side of GSSAPI, with the keys of a keytab: what a server of Hadoop does by Java."""

from __future__ import annotations

from ctypes import POINTER, byref, c_int, c_uint32, c_void_p
from typing import Any, Tuple

from tony_core.hadoop.kerberos import gssapi

_ACCEPT = 2


def _function(name: str, *arguments: Any) -> Any:
    function = getattr(gssapi._library(), name)
    function.argtypes = (POINTER(c_uint32), *arguments)
    function.restype = c_uint32
    return function


def _check(major: int, minor: c_uint32) -> int:
    if major & 0xFFFF0000:
        raise gssapi.GssError(major, minor.value, gssapi._describe(major, minor.value))
    return major


class Acceptor:
    """One authentication from the server's side."""

    def __init__(self, keytab: str) -> None:
        self._credential = c_void_p()
        pair = (b"keytab", f"FILE:{keytab}".encode())
        elements = (gssapi._StoreElement * 1)(gssapi._StoreElement(*pair))
        minor = c_uint32()
        acquire = gssapi._library().gss_acquire_cred_from
        major = acquire(
            *(byref(minor), None, 0xFFFFFFFF, None, _ACCEPT),
            *(byref(gssapi._Store(1, elements)), byref(self._credential), None, None),
        )
        _check(major, minor)
        self._context = c_void_p()
        self.client = ""
        self.complete = False

    def step(self, token: bytes) -> bytes:
        """Take the client's token; the answer to it."""
        accept = _function(
            "gss_accept_sec_context",
            *(POINTER(c_void_p), c_void_p, POINTER(gssapi._Buffer), c_void_p, POINTER(c_void_p)),
            *(c_void_p, POINTER(gssapi._Buffer), c_void_p, c_void_p, c_void_p),
        )
        name, minor, output = c_void_p(), c_uint32(), gssapi._Buffer()
        major = accept(
            *(byref(minor), byref(self._context), self._credential, byref(gssapi._given(token))),
            *(None, byref(name), None, byref(output), None, None, None),
        )
        answer = gssapi._take(output)
        _check(major, minor)
        self.complete = not major & 1
        shown = gssapi._Buffer()
        gssapi._library().gss_display_name(byref(minor), name, byref(shown), None)
        self.client = gssapi._take(shown).decode()
        gssapi._library().gss_release_name(byref(minor), byref(name))
        return answer

    def wrap(self, data: bytes, confidential: bool) -> bytes:
        output, encrypted, minor = gssapi._Buffer(), c_int(), c_uint32()
        wrap = gssapi._library().gss_wrap
        major = wrap(
            *(byref(minor), self._context, int(confidential), 0, byref(gssapi._given(data))),
            *(byref(encrypted), byref(output)),
        )
        _check(major, minor)
        return gssapi._take(output)

    def unwrap(self, token: bytes) -> Tuple[bytes, bool]:
        output, encrypted, minor = gssapi._Buffer(), c_int(), c_uint32()
        unwrap = gssapi._library().gss_unwrap
        major = unwrap(
            *(byref(minor), self._context, byref(gssapi._given(token)), byref(output)),
            *(byref(encrypted), None),
        )
        _check(major, minor)
        return gssapi._take(output), bool(encrypted.value)

    def close(self) -> None:
        minor = c_uint32()
        gssapi._library().gss_delete_sec_context(byref(minor), byref(self._context), None)
        gssapi._library().gss_release_cred(byref(minor), byref(self._credential))
