"""Fetches a job's fresh tokens, by the keytab that the job ships, in a short-lived process.

Each login or fetch is one run of the verb ``yarn-fetch-tokens``: Kerberos' library, its tickets and
what it needs of memory end with that process, and a KDC that does not answer cannot block the
master for longer than :data:`LIMIT_S`. The keys go through a pipe: they are in no file, argument
or variable.
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import time
from typing import Callable, Mapping, Optional, Sequence

from tony_core.hadoop.credentials import Credentials
from tony_core.schedulers.container_pool import FreshTokens
from tony_core.schedulers.port import LastingRefusal, SchedulerError
from tony_core.schedulers.yarn.job_credentials import MasterCredentials, ShippedKeytab
from tony_core.schedulers.yarn.master.user_tokens import token_dates
from tony_core.schedulers.yarn.node.fetch_request import UNREACHABLE, Fetched, Request

LIMIT_S = 90.0
OVERDUE_S = 300.0  # for the first fetch of a master whose tokens have ended
PAUSE_S = 5.0  # between its tries
LEAST_S = 10.0  # of a try: a shorter one would only say that it was too short


class TokenFetcher:
    """Runs the verb ``yarn-fetch-tokens`` for one job.

    :param command: TonY's own code on this node: a Python, its options, the runtime.
    :param node: this node, for messages.
    :param warning: what the job's story should say of keytabs on this node.
    """

    def __init__(
        self,
        shipped: ShippedKeytab,
        site: Mapping[str, str],
        user: str,
        command: Sequence[str],
        node: str,
        warning: str = "",
    ) -> None:
        self._request = Request(
            dict(site), shipped.principal, shipped.keytab, user, shipped.file_systems
        )
        self._command = (*command, "yarn-fetch-tokens")
        self._node = node
        self.warning = warning
        self._held = b""

    def check(self, limit_s: float = LIMIT_S) -> None:
        """Log in and do nothing.

        Raises :class:`LastingRefusal` if that cannot work on this node, or with this keytab, and
        :class:`SchedulerError` if a server could not be reached.
        """
        self._run(self._request._replace(check=True), limit_s)

    def fetch(self, limit_s: float = LIMIT_S) -> FreshTokens:
        """Fresh tokens: those of the fetch before, renewed, as long as that is possible."""
        answer = self._run(self._request._replace(held=self._held), limit_s)
        try:
            fetched = Fetched.decode(answer)
        except ValueError as error:
            raise SchedulerError(f"the answer to the fetch cannot be read: {error}") from None
        self._held = fetched.credentials.encode()
        return FreshTokens(self._held, fetched.ends, fetched.renewed)

    def _run(self, request: Request, limit_s: float) -> str:
        request = request._replace(limit_s=limit_s * 2 / 3)  # it then still can say why
        try:
            done = subprocess.run(
                self._command,
                input=request.encode(),
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            raise SchedulerError(
                f"{self._node}: no answer of the login by the keytab within {limit_s:g} s"
            ) from None
        except OSError as error:
            raise SchedulerError(
                f"{self._node}: the login by the keytab cannot be started: {error}"
            ) from None
        if done.returncode == 0:
            return done.stdout
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        lasts = done.returncode > 0 and done.returncode != UNREACHABLE
        raise (LastingRefusal if lasts else SchedulerError)(f"{self._node}: {lines[-1]}")


def fetch_overdue(
    fetcher: TokenFetcher,
    held: Credentials,
    log: Callable[[str], object],
    limit_s: float = OVERDUE_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Optional[FreshTokens]:
    """Fresh tokens for a master whose own are near their end, or past it; None where they are not.

    YARN starts each attempt with the tokens of the submit. Without others, one that starts after
    their end could read neither journal nor history, so it tries until ``limit_s`` have passed, the
    running fetch included. Raises :class:`SchedulerError`.
    """
    dates = token_dates(held)
    if dates is None or time.time() < dates.fetch_at:
        return None
    begun = clock()
    usable_until, give_up_at = begun + dates.end_at - time.time(), begun + limit_s
    while True:
        try:
            return fetcher.fetch(min(LIMIT_S, give_up_at - clock()))
        except SchedulerError as error:
            log(f"no fresh tokens yet: {error}")
            if clock() < usable_until:
                return None  # the first ones will do; the master tries again
            if isinstance(error, LastingRefusal):
                raise
            if clock() + PAUSE_S + LEAST_S > give_up_at:
                raise SchedulerError(
                    "the tokens of the job's submit have ended, and no others could be fetched"
                    f" within {limit_s:g} s. {error}"
                ) from None
        pause(PAUSE_S)


def create_fetcher(
    shipped: ShippedKeytab, sent: MasterCredentials, env: Mapping[str, str]
) -> TokenFetcher:
    """The fetcher of a master in a container, whose own code the process was started from."""
    node = env.get("NM_HOST") or socket.gethostname()
    command = (sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]))
    warning = warn_of_shared_user(sent.user, node)
    return TokenFetcher(shipped, sent.site, sent.user, command, node, warning=warning)


def warn_of_shared_user(owner: str, node: str) -> str:
    """A warning where the jobs of all users run as one: each can read the others' credentials."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    if user == owner:
        return ""
    return (
        f"containers on {node} run as {user}, not as {owner}: other users' jobs there can read the"
        " shipped keytab, as they can all credentials. Ask the administrator for"
        " LinuxContainerExecutor"
    )
