"""The portal as a process: puts its parts together, serves until it is asked to stop.

One process, one event loop. What may block runs in worker threads. SIGTERM and Ctrl-C end it: no
new request is taken, those that run get :data:`GRACE_S`, then the parts are closed. After
:data:`END_S` the process ends, whatever a thread of it still computes: a thread cannot be stopped.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Callable, Iterable, Iterator, Mapping, NamedTuple, Optional

import uvicorn
from starlette.types import ASGIApp

from tony_core.client.errors import ClientError
from tony_core.portal.access.access_log import AccessLog
from tony_core.portal.access.accounts import Accounts
from tony_core.portal.access.gate import Gate
from tony_core.portal.access.login import HeaderLogin, LoginMethod, Peers, SocketLogin
from tony_core.portal.access.origins import parse_networks
from tony_core.portal.access.sessions import Sessions
from tony_core.portal.connections import listen, raise_file_limit, server_config
from tony_core.portal.endings import Audit, Endings, describe_ending
from tony_core.portal.index.rows import JobRow
from tony_core.portal.monitoring import LiveKey, Monitoring
from tony_core.portal.settings import Settings
from tony_core.portal.viewer import Viewer

GRACE_S = 4
END_S = 5.0


class Parts(NamedTuple):
    """The application behind the gate, and what is measured of it."""

    app: ASGIApp
    find_problem: Callable[[], str] = lambda: ""
    numbers: Callable[[], Mapping[str, float]] = dict
    close: Callable[[], None] = lambda: None
    list_live: Callable[[], Iterable[LiveKey]] = tuple


class PortalError(ClientError):
    """The portal cannot start; the text says why and what to do."""


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; raises :class:`PortalError` when it cannot start.

    ``announce`` gets the portal's URL once it is bound.
    """
    raise_file_limit()
    _log_faults()
    # A job of a thousand tasks is a hundred thousand objects in no cycle: to look for cycles each
    # 700 of them takes as long as to make them.
    gc.set_threshold(50_000, 20, 50)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind(settings))
        host, port = listener.getsockname()[:2]
        gate = stack.enter_context(open_gate(settings, make_parts))
        announce(settings.url or url_of(host, port))
        with _quiet_signals():
            _Server(server_config(gate, GRACE_S)).run(sockets=[listener])


class _Server(uvicorn.Server):
    """One that is over some time after it was asked to end."""

    def handle_exit(self, sig: int, frame: Optional[FrameType]) -> None:
        """Take a signal."""
        timer = threading.Timer(END_S, os._exit, [0])
        timer.daemon = True
        timer.start()
        super().handle_exit(sig, frame)


@contextlib.contextmanager
def open_gate(settings: Settings, make_parts: Callable[[Settings, Audit], Parts]) -> Iterator[Gate]:
    """The whole portal as an ASGI application; raises :class:`PortalError`."""
    with contextlib.ExitStack() as stack:
        log = _open_log(settings)
        stack.callback(log.close)
        peers = Peers()
        stack.callback(peers.close)
        sessions = Sessions(settings.login.session_s)
        login = make_login(settings, sessions, peers)
        monitoring = Monitoring()

        def audit(result: str, viewer: Viewer, row: JobRow, text: str) -> None:
            monitoring.ended(result)
            log.note(describe_ending(result, viewer, row, text))

        parts = make_parts(settings, audit)
        stack.callback(parts.close)
        monitoring.watch(parts.find_problem, parts.numbers, parts.list_live)
        yield Gate(parts.app, settings, login, sessions, log, monitoring)


def _open_log(settings: Settings) -> AccessLog:
    try:
        return AccessLog(settings.access_log, parse_networks(settings.login.trusted))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PortalError(
            f"the access log {settings.access_log} cannot be written: {reason}"
        ) from None


def make_login(settings: Settings, sessions: Sessions, peers: Peers) -> LoginMethod:
    """The way to log in that the settings choose."""
    accounts = Accounts(settings)
    login = settings.login
    if login.by == "header":
        try:
            return HeaderLogin(login, accounts, peers)
        except KeyError as error:
            raise PortalError(f"[login] trusted-users: {error.args[0]}") from None
    if login.by == "oidc":
        from tony_core.portal.access.oidc_login import OidcLogin, read_secret

        try:
            secret = read_secret(login.oidc_secret_file)
        except (OSError, ValueError) as error:
            raise PortalError(f"[login] client-secret-file: {error}") from None
        return OidcLogin(settings, accounts, sessions, secret)
    if login.by == "spnego":
        from tony_core.hadoop.errors import HadoopError
        from tony_core.hadoop.kerberos.gssapi import GssError, LibraryMissing
        from tony_core.portal.access.spnego_login import SpnegoLogin

        try:
            return SpnegoLogin(settings, accounts, sessions)
        except GssError as error:
            raise PortalError(f"[login] keytab: {login.spnego_keytab}: {error}") from None
        except LibraryMissing as error:
            raise PortalError(f"[login] by = spnego needs Kerberos' library {error}") from None
        except HadoopError as error:
            raise PortalError(str(error)) from None
    return SocketLogin(accounts, peers)


def make_parts(settings: Settings, audit: Audit) -> Parts:
    """The index, the sources and the application, started."""
    from tony_core.portal.assembly import assemble
    from tony_core.portal.index.database import IndexInUse
    from tony_core.portal.jvm.names import UnusableRoot

    try:
        portal = assemble(
            settings,
            lambda pool, live: Endings(pool, live, settings.is_for_many, audit),
            write_note,
        )
    except OSError as error:
        where = error.filename or settings.index_folder
        reason = (error.strerror or str(error)).lower()
        raise PortalError(f"the index cannot be kept at {where}: {reason}") from None
    except IndexInUse as error:
        raise PortalError(
            f"{error}: end that one, or give this one an index of its own by --index PATH"
            " (index in its file)"
        ) from None
    except UnusableRoot as error:
        raise PortalError(f"write-jhist: {error}") from None

    def find_problem() -> str:
        # Read without a login: no name of a place, nothing about one of several.
        if portal.scanner.has_stopped():
            return "a history location is read no more, by a fault of the portal: restart it"
        states = portal.scanner.states()
        are_ill = bool(states) and all(state.problem for state in states)
        return "no history location can be read" if are_ill else ""

    return Parts(portal.app, find_problem, portal.numbers, portal.close, portal.list_live)


def bind(settings: Settings) -> socket.socket:
    """A listening socket; raises :class:`PortalError`."""
    try:
        return listen(settings.bind, settings.port)
    except OSError as error:
        where = f"{settings.bind}, port {settings.port}"
        if error.errno == errno.EADDRINUSE:
            why = f"another process listens at {where}: choose another --port"
        elif error.errno == errno.EACCES:
            why = f"this user may not listen at {where}: choose a --port of 1024 or more"
        else:
            reason = (error.strerror or str(error)).lower()
            why = f"the portal cannot listen at {where}: {reason}"
        raise PortalError(why) from None


def url_of(host: str, port: int) -> str:
    """The address of a listener."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def write_note(text: str) -> None:
    """Write a note of the portal's own on standard error, and nothing that drives a terminal."""
    with contextlib.suppress(OSError):  # its disk is full, its reader went away
        sys.stderr.write(_plain(text) + "\n")
        sys.stderr.flush()


class _PlainFormatter(logging.Formatter):
    """For what a server logs of a fault: a traceback repeats texts of jobs and requests."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text."""
        return _plain(super().format(record))


def _log_faults() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter("tony: %(message)s"))
    logger = logging.getLogger("uvicorn.error")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.WARNING)
    logger.propagate = False


def _plain(text: str) -> str:
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """Let the end that a signal asks for be an ordinary return: the server raises it once more."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    for one in before:
        signal.signal(one, lambda *ignored: None)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
