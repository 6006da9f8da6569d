"""A real KDC alone, without a cluster: up in a second, for what concerns logins only."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Iterator

import pytest

from tests.cluster.hadoop.kerberos import REALM, Kerberos

SERVICES = ("rm/localhost", "nn/localhost", "HTTP/localhost")
UP_S = 20


class Kdc:
    """A KDC in a folder of its own; ``kerberos`` has its principals, keytabs and tickets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        (folder / "data" / "kdc").mkdir(parents=True)
        self.kerberos = Kerberos(folder)
        self.kerberos.write_configuration(f"127.0.0.1:{self.port}")
        services = {name.partition("/")[0]: [f"{name}@{REALM}"] for name in SERVICES}
        self.kerberos.create(services, ("ann", "bob"))
        self._made = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.kerberos.kdc_command(),
                env={**os.environ, **self.kerberos.settings()},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        end = time.monotonic() + UP_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < end, "the KDC does not listen"
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop it."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(UP_S)

    def configuration(self, port: int) -> str:
        """A krb5.conf that names another port, for a KDC that does not answer."""
        path = self.folder / f"krb5-{port}.conf"
        text = self.kerberos.krb5_conf.read_text()
        path.write_text(text.replace(f"127.0.0.1:{self.port}", f"127.0.0.1:{port}"))
        return str(path)

    def new_user(self) -> str:
        """A principal of its own for a test, with a keytab."""
        self._made += 1
        user = f"user{self._made}"
        self.kerberos.kadmin(
            f"addprinc -randkey {user}",
            f"ktadd -norandkey -k {self.kerberos.keytab_of(user)} {user}",
        )
        return user

    def keytab_of(self, user: str) -> str:
        return str(self.kerberos.keytab_of(user))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def one_kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    kdc.start()
    yield kdc
    kdc.stop()


@pytest.fixture
def kdc(one_kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> Kdc:
    """A KDC that runs, and that this process's Kerberos uses; there is no ticket."""
    monkeypatch.setenv("KRB5_CONFIG", str(one_kdc.kerberos.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", str(one_kdc.folder / "no-ticket"))
    return one_kdc
