"""A real Kerberos for one cluster: KDC, principals, keytabs and tickets, all in its folder.

    kerberos/krb5.conf       what clients and Java read (KRB5_CONFIG)
    kerberos/kdc.conf        what the KDC reads (KRB5_KDC_PROFILE)
    kerberos/passwords       of the users, one "NAME PASSWORD" a line, for a kinit by hand
    kerberos/keytabs/NAME    the keys of a service (nn, dn, rm, nm, http) or of a user
    kerberos/tickets/NAME    a user's ticket cache
    data/kdc/                the KDC's database

Nothing in /etc is read or written. The KDC is MIT's, of Debian's packages, on a port of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional

from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.native import find_wrapper

REALM = "SANDBOX.EXAMPLE"

PROGRAM_S = 30.0
"""What a program of Kerberos gets; each needs some milliseconds."""

TICKET_LIFETIME = "10h"
RENEWABLE_FOR = "7d"

_PACKAGES = "krb5-kdc krb5-admin-server krb5-user libnss-wrapper curl"

_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "curl")

_KRB5_CONF = """\
[libdefaults]
    default_realm = {realm}
    # A name is what the configuration says, whatever this machine's resolver makes of it.
    rdns = false
    dns_canonicalize_hostname = false
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_uri_lookup = false
    udp_preference_limit = 1
    forwardable = true
    clockskew = {skew}
    # For Java, in milliseconds: a KDC that is down is noticed at once.
    kdc_timeout = 3000
    max_retries = 1
[realms]
    {realm} = {{
        kdc = {address}
    }}
[domain_realm]
    localhost = {realm}
"""

_KDC_CONF = """\
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = {address}
[realms]
    {realm} = {{
        database_name = {data}/principal
        key_stash_file = {data}/stash
        acl_file = {data}/acl
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
        max_life = {lifetime}
        max_renewable_life = {renewable}
        default_principal_flags = +forwardable, +renewable
    }}
[logging]
    kdc = STDERR
"""


def find_program(name: str) -> str:
    """The path of a program of Kerberos, or its name when it is not installed."""
    path = os.environ.get("PATH", "")
    return shutil.which(name, path=f"{path}:/usr/sbin:/sbin:/usr/bin:/bin") or name


def check_programs() -> None:
    """Raises a SandboxError that names what is missing and how to get it."""
    missing = [name for name in _PROGRAMS if os.sep not in find_program(name)]
    if find_wrapper() is None:
        missing.append("nss_wrapper")
    if missing:
        raise SandboxError(
            "a secure cluster needs MIT Kerberos, nss_wrapper and curl; not found:"
            f" {', '.join(missing)}. On Debian and Ubuntu:"
            f" DEBIAN_FRONTEND=noninteractive apt-get install {_PACKAGES}"
        )


@dataclass(frozen=True)
class Kerberos:
    """The Kerberos of the cluster in a folder."""

    cluster: Path

    @property
    def folder(self) -> Path:
        return self.cluster / "kerberos"

    @property
    def krb5_conf(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def kdc_conf(self) -> Path:
        return self.folder / "kdc.conf"

    def keytab_of(self, name: str) -> Path:
        """The keytab of a service or of a user."""
        return self.folder / "keytabs" / name

    def cache_of(self, user: str) -> Path:
        """Where a user's ticket cache is, with a ticket in it or not."""
        return self.folder / "tickets" / user

    def principal_of(self, user: str) -> str:
        """The full name of a user."""
        return f"{user}@{REALM}"

    def environment_of(self, user: str) -> Dict[str, str]:
        """With which a client finds the KDC and the user's ticket."""
        # Without the prefix FILE:, which Java does not understand.
        return {"KRB5_CONFIG": str(self.krb5_conf), "KRB5CCNAME": str(self.cache_of(user))}

    def kdc_command(self) -> List[str]:
        """Runs the KDC in the foreground, with the settings."""
        return [find_program("krb5kdc"), "-n"]

    # ------------------------------------------------------------------ making

    def write_configuration(
        self,
        address: str,
        *,
        lifetime: str = TICKET_LIFETIME,
        renewable: str = RENEWABLE_FOR,
        skew_s: int = 300,
    ) -> None:
        """The two files, for a KDC that listens at HOST:PORT."""
        self.folder.mkdir(mode=0o711)
        for name in ("keytabs", "tickets"):
            (self.folder / name).mkdir(mode=0o700)
        self.krb5_conf.write_text(_KRB5_CONF.format(realm=REALM, address=address, skew=skew_s))
        self.kdc_conf.write_text(
            _KDC_CONF.format(
                realm=REALM,
                address=address,
                data=self.cluster / "data" / "kdc",
                lifetime=lifetime,
                renewable=renewable,
            )
        )

    def create(self, services: Mapping[str, Iterable[str]], users: Iterable[str]) -> None:
        """The KDC's database with the principals of services (by the name of their keytab) and
        of users, and a keytab for each."""
        check_programs()
        master = secrets.token_urlsafe()
        self._run("kdb5_util", "create", "-s", "-r", REALM, answer=f"{master}\n{master}\n")
        passwords = {user: secrets.token_urlsafe(12) for user in users}
        lines = []
        wanted = []
        for name, principals in services.items():
            for principal in principals:
                lines.append(f"addprinc -randkey {principal}")
                lines.append(f"ktadd -norandkey -k {self.keytab_of(name)} {principal}")
                wanted.append(principal)
        for user, password in passwords.items():
            lines.append(f"addprinc -pw {password} {user}")
            lines.append(f"ktadd -norandkey -k {self.keytab_of(user)} {user}")
            wanted.append(user)
        output = self.kadmin(*lines)
        for principal in wanted:
            if f"Entry for principal {principal} with" not in output:
                raise SandboxError(f"kadmin.local made no keytab of {principal}:\n{output}")
        private = os.open(self.folder / "passwords", os.O_WRONLY | os.O_CREAT, 0o600)
        with open(private, "w") as file:
            file.writelines(f"{user} {password}\n" for user, password in passwords.items())

    def kadmin(self, *commands: str) -> str:
        """Commands of kadmin.local, straight on the database; what it printed. It prints
        errors too and goes on: the caller looks."""
        return self._run("kadmin.local", answer="".join(f"{line}\n" for line in commands))

    # ------------------------------------------------------------------ tickets

    def kinit(
        self, user: str, lifetime: str = "", renewable: str = "", cache: Optional[Path] = None
    ) -> Path:
        """A new ticket by the user's keytab, in the user's cache or another one, which it gives:
        ``lifetime`` and ``renewable`` as kinit reads them (``90s``, ``2h``)."""
        cache = cache or self.cache_of(user)
        # Whole or not at all for who reads meanwhile.
        scratch = cache.with_name(f".{cache.name}.{secrets.token_hex(4)}")
        options = ["-c", str(scratch), "-k", "-t", str(self.keytab_of(user))]
        options += ["-l", lifetime] if lifetime else []
        options += ["-r", renewable] if renewable else []
        try:
            self._run("kinit", *options, self.principal_of(user))
            scratch.replace(cache)
        finally:
            scratch.unlink(missing_ok=True)
        return cache

    def settings(self) -> Dict[str, str]:
        """The environment of the KDC and of its tools."""
        return {"KRB5_CONFIG": str(self.krb5_conf), "KRB5_KDC_PROFILE": str(self.kdc_conf)}

    def _run(self, name: str, *arguments: str, answer: str = "") -> str:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", **self.settings()}
        try:
            done = subprocess.run(
                [find_program(name), *arguments],
                env=environment,
                cwd=self.folder,
                input=answer,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=PROGRAM_S,
            )
        except FileNotFoundError:
            check_programs()
            raise
        except subprocess.TimeoutExpired:
            raise SandboxError(f"{name} took more than {PROGRAM_S} s") from None
        if done.returncode:
            raise SandboxError(f"{name}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout
