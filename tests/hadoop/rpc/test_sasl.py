"""DIGEST-MD5 and what it is made of, against the examples of the standards."""

from __future__ import annotations

import hashlib
import hmac
from typing import Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_core.hadoop.errors import AuthenticationError, ProtocolError
from tony_core.hadoop.rpc import sasl as sasl_module
from tony_core.hadoop.rpc.sasl import (
    DigestMd5,
    Rc4,
    equal_in_constant_time,
    hmac_md5,
    md5,
    parse_directives,
)

# RFC 2831, section 4: the example with IMAP.
_CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)


def example(**changes: object) -> DigestMd5:
    arguments: Dict[str, object] = {"nonce": lambda: b"OA6MHXh6VqTrRk", **changes}
    return DigestMd5(b"chris", b"secret", "imap/elwood.innosoft.com", **arguments)  # type: ignore[arg-type]


class TestTheStandardsExample:
    def test_our_answer(self) -> None:
        fields = parse_directives(example().respond(_CHALLENGE))
        assert fields["response"] == b"d388dad90d4bbd760a152321f2143af7"
        assert fields["username"] == b"chris"
        assert fields["digest-uri"] == b"imap/elwood.innosoft.com"
        assert fields["nc"] == b"00000001"

    def test_the_servers_proof(self) -> None:
        sasl = example()
        sasl.respond(_CHALLENGE)
        sasl.verify(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
        assert sasl.proven
        assert not sasl.protects

    @pytest.mark.parametrize("last", [b"", b"rspauth=", b"rspauth=ea40", b"other=1"])
    def test_no_proof(self, last: bytes) -> None:
        sasl = example()
        sasl.respond(_CHALLENGE)
        with pytest.raises(AuthenticationError):
            sasl.verify(last)
        assert not sasl.proven

    def test_no_proof_before_the_challenge(self) -> None:
        with pytest.raises(AuthenticationError):
            example().verify(b"rspauth=")


class TestChoice:
    @pytest.mark.parametrize(
        ("offered", "allowed", "chosen"),
        [
            (b"auth", ("auth-conf", "auth-int", "auth"), "auth"),
            (b"auth,auth-int", ("auth-conf", "auth-int", "auth"), "auth-int"),
            (b"auth-conf,auth", ("auth-conf", "auth-int", "auth"), "auth-conf"),
            (b"auth-conf,auth", ("auth",), "auth"),
        ],
    )
    def test_the_strongest_that_both_want(
        self, offered: bytes, allowed: object, chosen: str
    ) -> None:
        sasl = example(allowed=allowed)
        sasl.respond(_CHALLENGE.replace(b'"auth"', b'"' + offered + b'"') + b',cipher="3des,rc4"')
        assert sasl.qop == chosen

    def test_nothing_in_common(self) -> None:
        with pytest.raises(AuthenticationError, match="offers the protection auth, and auth-conf"):
            example(allowed=("auth-conf",)).respond(_CHALLENGE)

    def test_no_cipher_in_common(self) -> None:
        challenge = _CHALLENGE.replace(b'"auth"', b'"auth-conf"') + b',cipher="3des,des"'
        with pytest.raises(AuthenticationError, match="encrypts by 3des, des only"):
            example().respond(challenge)

    @pytest.mark.parametrize("without", [b"nonce", b"algorithm"])
    def test_what_a_challenge_must_hold(self, without: bytes) -> None:
        with pytest.raises(ProtocolError, match=without.decode()):
            example().respond(_CHALLENGE.replace(without, b"else"))


class TestDirectives:
    def test_quotes(self) -> None:
        assert parse_directives(rb'a="x,\"y\\",b=z , c="",a=2') == {
            "a": b'x,"y\\',
            "b": b"z",
            "c": b"",
        }

    @pytest.mark.parametrize("text", [b'a="x', b'a="x\\', b"nothing"])
    def test_malformed(self, text: bytes) -> None:
        with pytest.raises(ProtocolError):
            parse_directives(text)

    @fuzz(text=st.binary(max_size=60) | mutations(_CHALLENGE))
    def test_anything(self, text: bytes) -> None:
        try:
            parse_directives(text)
        except ProtocolError:
            pass


class TestPrimitives:
    @pytest.mark.parametrize(
        ("key", "plain", "secret"),
        [
            (b"Key", b"Plaintext", "bbf316e8d940af0ad3"),
            (b"Wiki", b"pedia", "1021bf0420"),
            (b"Secret", b"Attack at dawn", "45a01f645fc35b383552544b9bf5"),
        ],
    )
    def test_rc4(self, key: bytes, plain: bytes, secret: str) -> None:
        assert Rc4(key).apply(plain).hex() == secret
        assert Rc4(key).apply(bytes.fromhex(secret)) == plain

    @given(st.binary(min_size=1, max_size=16), st.binary(max_size=300), st.integers(0, 300))
    def test_rc4_goes_on_where_it_was(self, key: bytes, data: bytes, cut: int) -> None:
        cipher = Rc4(key)
        assert cipher.apply(data[:cut]) + cipher.apply(data[cut:]) == Rc4(key).apply(data)

    @given(st.binary(max_size=200), st.binary(max_size=200))
    def test_hmac(self, key: bytes, data: bytes) -> None:
        assert hmac_md5(key, data) == hmac.new(key, data, "md5").digest()

    def test_md5_is_never_asked_for_as_security(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A Python in FIPS mode refuses it otherwise."""

        def strict(data: bytes, *, usedforsecurity: bool = True) -> object:
            assert not usedforsecurity
            return hashlib.md5(data, usedforsecurity=False)

        monkeypatch.setattr(sasl_module, "_new", strict)
        example().respond(_CHALLENGE)
        assert hmac_md5(b"k" * 70, b"d") == hmac.new(b"k" * 70, b"d", "md5").digest()

    def test_md5(self) -> None:
        assert md5(b"abc").hex() == "900150983cd24fb0d6963f7d28e17f72"

    @given(st.binary(max_size=9), st.binary(max_size=9))
    def test_comparison(self, one: bytes, other: bytes) -> None:
        assert equal_in_constant_time(one, other) == (one == other)
