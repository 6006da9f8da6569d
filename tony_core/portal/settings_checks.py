"""What is wrong with settings that could be read, from whichever of file and options they come."""

from __future__ import annotations

import os
import stat
from typing import Callable, FrozenSet, Iterator, List, Tuple
from urllib.parse import urlsplit

from tony_core.portal.locations import check_scheme, reader_of
from tony_core.portal.settings import HistoryLocation, Settings
from tony_core.protocol.socket_owners import is_loopback


def find_problems(settings: Settings, unknown: FrozenSet[str] = frozenset()) -> List[str]:
    """What does not go together; nothing of fields that are ``unknown`` for a problem of theirs."""
    return [text for needs, rule in _RULES if not unknown & needs for text in rule(settings)]


def find_unreadable(settings: Settings) -> List[str]:
    """Which history locations cannot be read now, and why. Asks each of them."""
    return [text for location in settings.locations for text in _look(location)]


def _by_socket(settings: Settings) -> Iterator[str]:
    if settings.login.by == "socket" and not is_loopback(settings.bind):
        yield (
            f"bind is {settings.bind}, which other machines reach, and the login is by socket,"
            " which knows the users of this machine only: set [login] by to header, oidc or spnego"
        )


def _no_url(settings: Settings) -> Iterator[str]:
    if not is_loopback(settings.bind) and not settings.url:
        yield (
            f"bind is {settings.bind}, and url is missing: the address by which browsers reach the"
            " portal, as in url = https://tony.example.com (requests for other hosts are refused)"
        )


def _no_way_back(settings: Settings) -> Iterator[str]:
    if settings.login.by == "oidc" and not settings.url:
        yield (
            "url is missing: the identity provider sends browsers back to it"
            " (url = https://tony.example.com; register URL/login/callback there)"
        )


def _no_location(settings: Settings) -> Iterator[str]:
    if settings.is_for_many and not settings.locations:
        yield (
            "there is no [history NAME] section: a portal for many users reads a location that is"
            " shared on purpose (docs/portal.md)"
        )


def _same_names(settings: Settings) -> Iterator[str]:
    names = [location.name for location in settings.locations]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two locations have the name {name}"


def _schemes(settings: Settings) -> Iterator[str]:
    for location in settings.locations:
        try:
            check_scheme(location.root)
        except OSError as error:
            yield f"history {location.name}: {error.filename}: {error.strerror}"


def _secrets(settings: Settings) -> Iterator[str]:
    for what, path in (
        ("client-secret-file", settings.login.oidc_secret_file),
        ("keytab", settings.login.spnego_keytab),
    ):
        problem = secret_file_problem(path) if path else ""
        if problem:
            yield f"[login] {what}: {problem}"


_RULES: Tuple[Tuple[FrozenSet[str], Callable[[Settings], Iterator[str]]], ...] = (
    (frozenset(("bind", "by")), _by_socket),
    (frozenset(("bind", "url")), _no_url),
    (frozenset(("by", "url")), _no_way_back),
    (frozenset(("by", "locations")), _no_location),
    (frozenset(), _same_names),
    (frozenset(), _schemes),
    (frozenset(), _secrets),
)
"""The fields of settings that a rule judges, and the rule."""


def _look(location: HistoryLocation) -> Iterator[str]:
    try:
        if location.root:
            check_scheme(location.root)
    except OSError:
        return  # found without a look
    try:
        if location.root:
            reader_of(location).names()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        yield f"history {location.name}: {location.root} cannot be read: {reason}"


def find_warnings(settings: Settings) -> List[str]:
    """What works, and is dangerous."""
    warnings = []
    if settings.is_for_many and not settings.uses_https:
        host = urlsplit(settings.url).hostname or ""
        if not (is_loopback(settings.bind) and (not host or is_loopback(host))):
            warnings.append(
                "browsers reach the portal without TLS: who listens on the network can take over"
                " logins. Put a proxy with TLS before it, and set url = https://..."
            )
    if settings.public:
        warnings.append("public = yes: everyone who can log in sees every job of every location")
    return warnings


def secret_file_problem(path: str) -> str:
    """Why a file cannot hold a secret; empty if it can."""
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{path} cannot be read ({(error.strerror or str(error)).lower()})"
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is no plain file"
    if found.st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        mode = stat.S_IMODE(found.st_mode)
        return (
            f"other users can read or change {path} (mode {mode:o}), and it is a secret:"
            f" chmod 600 {path}, or 640 with the portal's own group. Others may have it already:"
            " get a new one"
        )
    if not os.access(path, os.R_OK):
        return f"{path} cannot be read by the portal's user"
    return ""
