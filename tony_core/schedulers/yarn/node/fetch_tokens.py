"""The verb ``yarn-fetch-tokens``: logs in by a keytab and obtains a job's fresh tokens.

A process of its own, which lives for seconds: Kerberos' library and its tickets stay out of the
master's memory, and a KDC that does not answer cannot block the master. It reads a request on
stdin, and writes one line on stdout (both JSON):

==================  ==========================================================================
request             meaning
==================  ==========================================================================
``site``            properties of the cluster, the principals of its services among them
``principal``       whom to log in as
``keytab``          the path of its keytab
``user``            the owner of the job: the principal has to be this user's
``file_systems``    locations; each is on a file system for which the job needs a token
``check``           only find the library, ``krb5.conf`` and a login; the answer is then empty
==================  ==========================================================================

==================  ==========================================================================
answer              meaning
==================  ==========================================================================
``credentials``     a file of credentials with the tokens, in base64
``ends``            when the first of them expires, in seconds since the epoch
==================  ==========================================================================

The user is the renewer of these tokens, not the ResourceManager, which renews a job's first ones
only. Each is renewed once, since the answer says when it expires. Exit code 1: one sentence on
stderr says why there are none. Keys and tokens are in no argument, variable or message.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import ConfigurationError, HadoopError
from tony_core.hadoop.hdfs.namenode_client import obtain_token, renew_token
from tony_core.hadoop.identity import ClusterIdentity, identity_by_login, rm_token_service
from tony_core.hadoop.kerberos.login import Login
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.rm_client import RmClient

LIMIT_S = 60.0
FAILED, USAGE = 1, 2


class Request(NamedTuple):
    """What to fetch, and as whom."""

    site: Dict[str, str]
    principal: str
    keytab: str
    user: str
    file_systems: Tuple[str, ...] = ()
    check: bool = False

    def encode(self) -> str:
        """The text for the process's stdin."""
        return json.dumps(self._asdict())

    @classmethod
    def decode(cls, text: str) -> Request:
        """Undo :meth:`encode`; raises :class:`ValueError`."""
        values = json.loads(text)
        if not isinstance(values, dict) or not set(values) <= set(cls._fields):
            raise ValueError(f"expected an object with {', '.join(cls._fields)}")
        try:
            return cls(**{**values, "file_systems": tuple(values.get("file_systems", ()))})
        except TypeError as error:
            raise ValueError(str(error)) from None


class Fetched(NamedTuple):
    """Fresh tokens by their services."""

    credentials: Credentials
    ends: float
    """When the first of them expires, in seconds since the epoch."""

    def encode(self) -> str:
        """The line on the process's stdout."""
        data = base64.b64encode(self.credentials.encode()).decode("ascii")
        return json.dumps({"credentials": data, "ends": self.ends})

    @classmethod
    def decode(cls, text: str) -> Fetched:
        """Undo :meth:`encode`; raises :class:`ValueError`."""
        try:
            values = json.loads(text)
            data = base64.b64decode(values["credentials"], validate=True)
            return cls(Credentials.decode(data), float(values["ends"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the answer lacks {error}") from None


def main(argv: Sequence[str], limit_s: float = LIMIT_S) -> int:
    """Answer the request on stdin; returns the exit code."""
    try:
        if argv:
            raise ValueError(f"unexpected argument {argv[0]!r}")
        request = Request.decode(sys.stdin.read())
    except ValueError as error:
        sys.stderr.write(f"yarn-fetch-tokens: {error}\n")
        return USAGE
    step = ["starting"]
    timer = threading.Timer(limit_s, _give_up, (limit_s, step))
    timer.daemon = True
    timer.start()
    try:
        answer = _answer(request, lambda text: step.__setitem__(0, text))
    except HadoopError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    finally:
        timer.cancel()
    sys.stdout.write(answer + "\n")
    return 0


def _answer(request: Request, report: Callable[[str], None]) -> str:
    conf = SiteConfiguration.of(request.site)
    report(f"logging in as {request.principal}")
    identity = log_in(conf, request)
    return "{}" if request.check else fetch(conf, identity, request, report).encode()


def log_in(conf: SiteConfiguration, request: Request) -> ClusterIdentity:
    """The job's owner, by the keytab; raises :class:`HadoopError` in one sentence."""
    login = Login.from_keytab(request.principal, request.keytab)
    login.check()
    identity = identity_by_login(conf, login)
    if identity.user != request.user:
        raise ConfigurationError(
            f"{login.principal} is the user {identity.user} on this cluster"
            f" (hadoop.security.auth_to_local), and the job belongs to {request.user}: name a"
            f" principal of {request.user}'s in tony.kerberos.principal"
        )
    return identity


def fetch(
    conf: SiteConfiguration,
    identity: ClusterIdentity,
    request: Request,
    report: Callable[[str], None] = lambda text: None,
) -> Fetched:
    """Fresh tokens for each file system and the ResourceManager; raises :class:`HadoopError`."""
    assert identity.login is not None
    renewer = identity.login.principal
    tokens: Dict[str, Token] = {}
    ends: List[float] = []
    for location in request.file_systems:
        found = endpoints.name_service(conf, location)
        report(f"asking {found.rpc.service} for a token")
        token = obtain_token(conf, identity, found, renewer)
        if token.service not in tokens:
            tokens[token.service] = token
            ends.append(renew_token(conf, identity, found, token))
    report("asking the ResourceManager for a token")
    rm = RmClient.open(conf, identity=identity)
    try:
        token = rm.delegation_token(renewer)._replace(service=rm_token_service(conf))
        tokens[token.service] = token
        ends.append(rm.renew_delegation_token(token))
    finally:
        rm.close()
    return Fetched(Credentials(tokens), min(ends))


def _give_up(limit_s: float, step: Sequence[str]) -> None:
    """End this process: any call of a library may block its main thread."""
    sys.stderr.write(f"the fetch of fresh tokens took more than {limit_s:g} s; it was {step[0]}\n")
    sys.stderr.flush()
    os._exit(FAILED)
