"""Each refusal of a KDC in one sentence: the system's library, and a KDC that refuses by script."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Dict, Iterator

import pytest

from tests.hadoop.kerberos.test_files import entry
from tony_core.hadoop.errors import LoginError
from tony_core.hadoop.kerberos import gssapi
from tony_core.hadoop.kerberos.login import Login

pytestmark = pytest.mark.skipif(not gssapi.is_available(), reason="needs libgssapi_krb5.so.2")

REALM = "SCRIPT.EXAMPLE"


def der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = bytes((len(body),)) if len(body) < 128 else b"\x81" + bytes((len(body),))
    return bytes((tag,)) + size + body


def number(value: int) -> bytes:
    return der(0x02, value.to_bytes(4, "big"))


def text(value: str) -> bytes:
    return der(0x1B, value.encode())


def krb_error(code: int) -> bytes:
    """A KRB-ERROR (RFC 4120, 5.9.1) with a number of its section 7.5.9."""
    now = time.strftime("%Y%m%d%H%M%SZ", time.gmtime())
    server = der(
        0x30,
        der(0xA0, number(2)),
        der(0xA1, der(0x30, text("krbtgt"), text(REALM))),
    )
    return der(
        0x7E,
        der(
            0x30,
            der(0xA0, number(5)),
            der(0xA1, number(30)),
            der(0xA4, der(0x18, now.encode())),
            der(0xA5, number(0)),
            der(0xA6, number(code)),
            der(0xA9, text(REALM)),
            der(0xAA, server),
        ),
    )


class Refuser:
    """A KDC that answers to everything by one error."""

    def __init__(self) -> None:
        self.code = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock, sock.makefile("rb") as stream:
                size = int.from_bytes(stream.read(4), "big")
                stream.read(size)
                answer = krb_error(self.code)
                sock.sendall(len(answer).to_bytes(4, "big") + answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()


@pytest.fixture
def refuser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refuser]:
    made = Refuser()
    (tmp_path / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
        f" udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{made.port}\n }}\n"
    )
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    (tmp_path / "ann.keytab").write_bytes(b"\x05\x02" + entry(REALM, "ann"))
    yield made
    made.close()


SENTENCES: Dict[int, str] = {
    1: f"the KDC refuses ann@{REALM} (",
    6: f"the KDC does not know ann@{REALM} (",
    12: f"the KDC refuses ann@{REALM} (",
    14: "this machine and the KDC have no type of encryption in common (",
    18: f"the KDC refuses ann@{REALM} (Client's credentials have been revoked): ask the",
    23: f"the password of ann@{REALM} has expired: change it by kpasswd, and get a new keytab",
    24: f"the keys of ann@{REALM} in the keytab ",
    31: f"the keys of ann@{REALM} in the keytab ",
    37: "this machine's clock differs too much from that of Kerberos (Clock skew too great): set",
    60: "the keytab ",  # an error without a sentence of its own
}


@pytest.mark.parametrize("code", SENTENCES)
def test_a_refusal(refuser: Refuser, tmp_path: Path, code: int) -> None:
    refuser.code = code
    login = Login.from_keytab("ann", str(tmp_path / "ann.keytab"))
    with pytest.raises(LoginError) as caught:
        login.check()
    message = str(caught.value)
    assert message.startswith(SENTENCES[code])
    assert not message.endswith(".") and ". " not in message, "one sentence"


def test_the_next_try_asks_again(refuser: Refuser, tmp_path: Path) -> None:
    login = Login.from_keytab("ann", str(tmp_path / "ann.keytab"))
    for code in (37, 18):
        refuser.code = code
        with pytest.raises(LoginError) as caught:
            login.check()
        assert str(caught.value).startswith(SENTENCES[code])
