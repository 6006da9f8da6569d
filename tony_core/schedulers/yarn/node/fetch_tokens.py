"""The verb ``yarn-fetch-tokens``: logs in by a keytab and obtains a job's fresh tokens.

A process of its own, which lives for seconds: Kerberos' library and its tickets stay out of the
master's memory, and a KDC that does not answer cannot block the master. It reads a request on
stdin, and writes one line on stdout (``fetch_request``).

The user is the renewer of these tokens, not the ResourceManager, which renews a job's first ones
only. Those of ``held`` are renewed until they are at the end of their maximum lifetime; new ones
take their place then. Each new one is renewed once, since the answer says when it expires.

Otherwise one sentence on stderr says why there are none; exit code 1: another try cannot help, 3:
a server could not be reached, or refused (a NameNode in safe mode). Keys and tokens are in no
argument, variable or message. Kerberos' library reads a keytab from a path only: it gets that of a
file without a name, in memory, which ends with the process, whatever ends it. No core dump or other
process of the user gets the memory.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Callable, Iterator, List, NamedTuple, Optional, Sequence

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import ConfigurationError, HadoopError, LoginError, RemoteError
from tony_core.hadoop.hdfs.namenode_client import obtain_token, renew_token
from tony_core.hadoop.identity import (
    ClusterIdentity,
    hdfs_token_service,
    identity_by_login,
    rm_token_service,
)
from tony_core.hadoop.kerberos.login import Login
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, RM_DELEGATION, Token, lifetime_of
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.schedulers.yarn.node.fetch_request import (
    FAILED,
    UNREACHABLE,
    USAGE,
    Fetched,
    Request,
)

SHIPPED = "the shipped keytab"
PR_SET_DUMPABLE = 4


def main(argv: Sequence[str]) -> int:
    """Answer the request on stdin; returns the exit code."""
    protect_memory()
    try:
        if argv:
            raise ValueError(f"unexpected argument {argv[0]!r}")
        request = Request.decode(sys.stdin.read())
    except ValueError as error:
        sys.stderr.write(f"yarn-fetch-tokens: {error}\n")
        return USAGE
    step = ["starting"]
    timer = threading.Timer(request.limit_s, _give_up, (request.limit_s, step))
    timer.daemon = True
    timer.start()
    try:
        answer = _answer(request, lambda text: step.__setitem__(0, text))
    except HadoopError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED if isinstance(error, (ConfigurationError, LoginError)) else UNREACHABLE
    finally:
        timer.cancel()
    sys.stdout.write(answer + "\n")
    return 0


def protect_memory() -> None:
    """Keep keys out of core dumps, and of the reach of ptrace by the user's other processes."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _answer(request: Request, report: Callable[[str], None]) -> str:
    conf = SiteConfiguration.of(request.site)
    report(f"logging in as {request.principal}")
    with _open_anonymous_file(request.keytab) as path:
        identity = log_in(conf, request, path)
        return "{}" if request.check else fetch(conf, identity, request, report).encode()


@contextmanager
def _open_anonymous_file(content: bytes) -> Iterator[str]:
    """The path of a file that is in no folder, for this process alone."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = open(os.memfd_create("keytab"), "w+b")  # noqa: SIM115
    else:  # an older C library's Python
        file = tempfile.TemporaryFile()  # noqa: SIM115
    with file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def log_in(conf: SiteConfiguration, request: Request, path: str) -> ClusterIdentity:
    """The job's owner, by the keytab; raises :class:`HadoopError` in one sentence."""
    login = Login.from_keytab(request.principal, path, SHIPPED)
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
    held = Credentials.decode(request.held) if request.held else Credentials()
    issued: List[Issued] = []
    for location in request.file_systems:
        found = endpoints.name_service(conf, location)
        service = hdfs_token_service(conf, found)
        if service in (one.token.service for one in issued):
            continue
        report(f"asking {found.rpc.service} for a token")
        renew = partial(renew_token, conf, identity, found)
        kept = _renew(held, HDFS_DELEGATION, service, renew)
        if kept is None:
            token = obtain_token(conf, identity, found, renewer)
            kept = Issued(token, renew(token))
        issued.append(kept)
    report("asking the ResourceManager for a token")
    service = rm_token_service(conf)
    rm = RmClient.open(conf, identity=identity)
    try:
        kept = _renew(held, RM_DELEGATION, service, rm.renew_delegation_token)
        if kept is None:
            token = rm.delegation_token(renewer)._replace(service=service)
            kept = Issued(token, rm.renew_delegation_token(token))
        issued.append(kept)
    finally:
        rm.close()
    tokens = {one.token.service: one.token for one in issued}
    ends = min(one.ends for one in issued)
    return Fetched(Credentials(tokens), ends, all(one.renewed for one in issued))


class Issued(NamedTuple):
    """A token, and when it expires unless it is renewed."""

    token: Token
    ends: float
    renewed: bool = False


def _renew(
    held: Credentials, kind: str, service: str, renew: Callable[[Token], float]
) -> Optional[Issued]:
    """The token of the fetch before, renewed; None if a new one has to take its place."""
    for token in held.find(kind):
        lifetime = lifetime_of(token)
        if token.service != service or lifetime is None:
            continue
        try:
            ends = renew(token)
        except RemoteError:
            return None  # it has ended, or was cancelled
        # At the end of its maximum lifetime the next renewal would gain nothing.
        return Issued(token, ends, renewed=True) if ends < lifetime.ends_s else None
    return None


def _give_up(limit_s: float, step: Sequence[str]) -> None:
    """End this process: any call of a library may block its main thread."""
    sys.stderr.write(f"the fetch of fresh tokens took more than {limit_s:g} s; it was {step[0]}\n")
    sys.stderr.flush()
    os._exit(UNREACHABLE)
