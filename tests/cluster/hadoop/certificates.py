"""TLS for a cluster's web servers: an authority of its own, and one certificate for all hosts.

    tls/authority.pem   what clients trust (SSL_CERT_FILE)
    tls/server.p12      certificate and key of the web servers
    tls/trusted.p12     the authority, as Java's clients read it

By the programs openssl and keytool. The authority's key is thrown away at once.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable

from tests.cluster.hadoop.jars import SandboxError, run
from tests.cluster.hadoop.site import Properties

PROGRAM_S = 30.0
VALID_DAYS = 30

_OPENSSL_CNF = """\
[req]
prompt = no
distinguished_name = name
[name]
CN = hadoop-sandbox
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True)
class Certificates:
    """Those of the cluster in a folder."""

    cluster: Path
    password: str
    """Of both stores."""

    @property
    def folder(self) -> Path:
        return self.cluster / "tls"

    @property
    def authority(self) -> Path:
        return authority_of(self.cluster)

    def environment(self) -> Dict[str, str]:
        """With which Python, requests and curl trust the web servers."""
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
        return dict.fromkeys(names, str(self.authority))

    def server_site(self) -> Properties:
        """ssl-server.xml, which is for the daemons alone."""
        return {
            "ssl.server.keystore.location": str(self.folder / "server.p12"),
            "ssl.server.keystore.type": "pkcs12",
            "ssl.server.keystore.password": self.password,
            "ssl.server.keystore.keypassword": self.password,
            **self._trusted("server"),
        }

    def client_site(self) -> Properties:
        """ssl-client.xml"""
        return self._trusted("client")

    def _trusted(self, side: str) -> Properties:
        return {
            f"ssl.{side}.truststore.location": str(self.folder / "trusted.p12"),
            f"ssl.{side}.truststore.type": "pkcs12",
            f"ssl.{side}.truststore.password": self.password,
        }

    def create(self, hosts: Iterable[str], java_home: Path) -> None:
        """The three files, for host names and addresses."""
        self.folder.mkdir(mode=0o711)
        names = [f"{'IP' if host[0].isdigit() else 'DNS'}:{host}" for host in hosts]
        (self.folder / "openssl.cnf").write_text(_OPENSSL_CNF.format(names=", ".join(names)))
        secret = os.open(self.folder / "password", os.O_WRONLY | os.O_CREAT, 0o600)
        with open(secret, "w") as file:
            file.write(self.password)
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
        self._openssl(
            *("req", "-x509", *new_key, "-keyout", "authority.key", "-out", "authority.pem"),
            *("-extensions", "authority", "-days", str(VALID_DAYS), "-config", "openssl.cnf"),
        )
        self._openssl(
            *("req", "-x509", *new_key, "-keyout", "server.key", "-out", "server.pem"),
            *("-CA", "authority.pem", "-CAkey", "authority.key"),
            *("-extensions", "server", "-days", str(VALID_DAYS), "-config", "openssl.cnf"),
        )
        self._openssl(
            *("pkcs12", "-export", "-in", "server.pem", "-inkey", "server.key", "-name", "server"),
            *("-certfile", "authority.pem", "-out", "server.p12", "-passout", "file:password"),
        )
        keytool = [str(java_home / "bin" / "keytool"), "-importcert", "-noprompt"]
        keytool += ["-alias", "authority", "-file", "authority.pem", "-storetype", "PKCS12"]
        keytool += ["-keystore", "trusted.p12", "-storepass:file", "password"]
        self._run(keytool)
        (self.folder / "server.p12").chmod(0o600)
        for name in ("authority.key", "server.key", "server.pem", "openssl.cnf", "password"):
            (self.folder / name).unlink()

    def _openssl(self, *arguments: str) -> None:
        self._run(["openssl", *arguments])

    def _run(self, command: list[str]) -> None:
        try:
            run(command, PROGRAM_S, "make certificates", self.folder, dict(os.environ))
        except FileNotFoundError:
            raise SandboxError(
                f"a cluster with HTTPS needs {command[0]}, which is not here. On Debian and"
                " Ubuntu: apt-get install openssl"
            ) from None


def authority_of(cluster: Path) -> Path:
    """What clients of the cluster in a folder trust, as PEM."""
    return cluster / "tls" / "authority.pem"


def new_certificates(cluster: Path) -> Certificates:
    """Not yet made, with a password that no other cluster has."""
    return Certificates(cluster, secrets.token_urlsafe())
