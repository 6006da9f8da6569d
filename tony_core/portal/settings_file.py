"""Reads the portal's file (``--config``), an INI file, into :class:`Settings`.

Every key is a row of a table: its name, how its text becomes a value, and the field that takes it.
All problems are found at once, each with its section and key.
"""

from __future__ import annotations

import configparser
import ipaddress
import os
import re
import stat
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Set, Tuple
from urllib.parse import urlsplit

from tony_core.job.units import parse_duration_s, parse_int, parse_list, parse_memory_mb
from tony_core.portal.jvm.names import check_root
from tony_core.portal.settings import HistoryLocation, Login, Settings
from tony_core.protocol.socket_owners import is_loopback

LAYOUTS = ("tony", "jvm-tony")
LOGINS = ("socket", "header", "oidc", "spnego")
LOCATION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_BOOLEANS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


class SettingsError(Exception):
    """What is wrong with the settings: a line for each problem.

    ``settings`` is what could be read all the same, without the fields that are ``unknown``; None
    where the file itself could not be.
    """

    def __init__(
        self,
        problems: List[str],
        path: str = "",
        settings: Optional[Settings] = None,
        unknown: FrozenSet[str] = frozenset(),
    ) -> None:
        self.problems = problems
        self.settings = settings
        self.unknown = unknown
        where = path or "the settings"
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n  ".join([f"{where}: {count}", *problems]))


class _Key(NamedTuple):
    parse: Callable[[str], Any]
    field: str


def _path(text: str) -> str:
    path = os.path.expanduser(text)
    if not os.path.isabs(path):
        raise ValueError(f"{text!r} is not an absolute path")
    return path


def _location(text: str) -> str:
    return text.rstrip("/") if "://" in text else _path(text)


def _jhist_root(text: str) -> str:
    return check_root(_location(text))


def _layout(text: str) -> str:
    if text not in LAYOUTS:
        raise ValueError(f"{text!r} is no layout of history: {', '.join(LAYOUTS)}")
    return text


def _port(text: str) -> int:
    number = parse_int(text, at_least=0)
    if number > 65535:
        raise ValueError(f"{text!r} is not a port: 0 (any free one) to 65535")
    return number


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"{text!r} is neither yes nor no")
    return _BOOLEANS[text.lower()]


def _bytes(text: str) -> int:
    return parse_memory_mb(text) << 20


def _age(text: str) -> Optional[float]:
    return parse_duration_s(text, "s")


def _span(text: str) -> float:
    found = parse_duration_s(text, "s")
    if not found:
        raise ValueError(f"{text!r} is no limit; write 30m, 8h, 1d")
    return found


def _networks(text: str) -> Tuple[str, ...]:
    found = parse_list(text)
    for one in found:
        try:
            ipaddress.ip_network(one)
        except ValueError:
            raise ValueError(
                f"{one!r} is no address and no network: write 10.1.2.3, 10.1.0.0/16, fd00::/8"
            ) from None
    return found


def _header_name(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError(f"{text!r} is no header's name: letters, digits and -")
    return text.lower()


def _login(text: str) -> str:
    if text not in LOGINS:
        raise ValueError(f"{text!r} is no way to log in: {', '.join(LOGINS)}")
    return text


def _url(text: str) -> str:
    try:
        split = urlsplit(text)
        host, _ = split.hostname, split.port
    except ValueError:
        raise ValueError(f"{text!r} has an invalid host or port") from None
    if split.scheme not in ("http", "https") or not host or "@" in split.netloc:
        raise ValueError(f"{text!r} is not a URL as https://tony.example.com")
    if split.path not in ("", "/") or split.query or split.fragment:
        raise ValueError(f"{text!r} has a path; the portal needs a host of its own")
    return f"{split.scheme}://{split.netloc}"


def _issuer(text: str) -> str:
    split = urlsplit(text)
    if split.scheme == "https" and split.hostname:
        return text
    if split.scheme == "http" and is_loopback(split.hostname or ""):
        return text  # of a test on this machine
    raise ValueError(f"{text!r} is not an https URL")


def _text(text: str) -> str:
    return text


_PORTAL: Mapping[str, _Key] = {
    "bind": _Key(_text, "bind"),
    "port": _Key(_port, "port"),
    "url": _Key(_url, "url"),
    "index": _Key(_path, "index_folder"),
    "schedulers": _Key(parse_list, "schedulers"),
    "admins": _Key(parse_list, "admins"),
    "public": _Key(_boolean, "public"),
    "access-log": _Key(_path, "access_log"),
    "metrics-from": _Key(_networks, "metrics_from"),
    "tensorboard-idle": _Key(_span, "tensorboard_idle_s"),
    "tensorboard-port": _Key(_port, "tensorboard_port"),
    "tensorboard-url": _Key(_url, "tensorboard_url"),
    "tensorboard-python": _Key(_path, "tensorboard_python"),
}
_HISTORY: Mapping[str, _Key] = {
    "path": _Key(_location, "root"),
    "layout": _Key(_layout, "kind"),
    "retention": _Key(_age, "retention_s"),
    "retention-size": _Key(_bytes, "retention_bytes"),
    "write-jhist": _Key(_jhist_root, "write_jhist"),
}
_LOGIN: Mapping[str, _Key] = {
    "by": _Key(_login, "by"),
    "domain": _Key(_text, "domain"),
    "session": _Key(_span, "session_s"),
    "header": _Key(_header_name, "header"),
    "groups-header": _Key(_header_name, "groups_header"),
    "trusted": _Key(_networks, "trusted"),
    "trusted-users": _Key(parse_list, "trusted_users"),
    "issuer": _Key(_issuer, "oidc_issuer"),
    "client-id": _Key(_text, "oidc_client_id"),
    "client-secret-file": _Key(_path, "oidc_secret_file"),
    "scopes": _Key(parse_list, "oidc_scopes"),
    "user-claim": _Key(_text, "oidc_user_claim"),
    "groups-claim": _Key(_text, "oidc_groups_claim"),
    "principal": _Key(_text, "spnego_principal"),
    "keytab": _Key(_path, "spnego_keytab"),
}

_NEEDS: Mapping[str, Tuple[str, ...]] = {
    "socket": (),
    "header": ("header", "trusted"),
    "oidc": ("issuer", "client-id", "client-secret-file"),
    "spnego": ("keytab",),
}
_BELONGS: Mapping[str, Tuple[str, ...]] = {
    "socket": (),
    "header": ("header", "groups-header", "trusted", "trusted-users", "domain"),
    "oidc": (
        *("issuer", "client-id", "client-secret-file", "scopes", "user-claim", "groups-claim"),
        *("domain", "session"),
    ),
    "spnego": ("principal", "keytab", "session"),
}
_SECRETS = ("client-secret", "secret", "password")


def read_settings_file(path: str) -> Settings:
    """The settings of a file; raises :class:`SettingsError` with all that is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            problem = _who_else_writes(path, os.fstat(file.fileno()))
            text = file.read()
    except OSError as error:
        raise SettingsError([(error.strerror or str(error)).lower()], path) from None
    except UnicodeDecodeError:
        raise SettingsError(["not a text in UTF-8"], path) from None
    if problem:
        raise SettingsError([problem], path)
    return parse_settings(text, path)


def parse_settings(text: str, path: str = "") -> Settings:
    """The settings of an INI file's text; raises :class:`SettingsError`."""
    # A percent sign stands for itself, and a "#" may stand in a URL.
    parser = configparser.RawConfigParser(delimiters=("=",), default_section="\0", strict=True)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise SettingsError([_first_line(error)], path) from None
    problems: List[str] = []
    unknown: Set[str] = set()
    settings: Dict[str, Any] = {}
    login: Dict[str, Any] = {}
    locations: List[HistoryLocation] = []
    for section in parser.sections():
        items = dict(parser.items(section))
        kind, _, name = section.partition(" ")
        name = name.strip()
        if section == "portal":
            settings = _fields(section, items, _PORTAL, problems, unknown)
        elif section == "login":
            login = _fields(section, items, _LOGIN, problems, unknown)
            problems += _login_problems(items, login)
        elif kind == "history" and name:
            fields = _fields(section, items, _HISTORY, problems, unknown)
            if not LOCATION_NAME.fullmatch(name):
                problems.append(f"[{section}]: a name has letters, digits and -_. only")
            if "path" not in items:
                problems.append(f"[{section}]: path is missing: a folder, or hdfs://...")
            locations.append(HistoryLocation(name, **{"root": "", **fields}))
        elif kind == "history":
            problems.append("[history]: a location has a name, as in [history shared]")
            unknown.add("locations")
        else:
            known = ["portal", "login", "history NAME"]
            unknown.update(("locations", "by"))  # either may have been meant
            problems.append(f"[{section}]: there is no such section{_nearest(kind, known)}")
    found = Settings(**settings, locations=tuple(locations), login=Login(**login))
    if problems:
        raise SettingsError(problems, path, found, frozenset(unknown))
    return found


def _who_else_writes(path: str, found: os.stat_result) -> str:
    """Why others than this user and root decide what a file says; empty if they do not."""
    if found.st_uid not in (0, os.geteuid()):
        return f"it belongs to another user (uid {found.st_uid}), who could make himself admin"
    if found.st_mode & stat.S_IWOTH:
        return f"every user can write it, and make himself admin: chmod o-w {path}"
    return ""


def _fields(
    section: str,
    items: Mapping[str, str],
    keys: Mapping[str, _Key],
    problems: List[str],
    unknown: Set[str],
) -> Dict[str, Any]:
    """The fields that are good; ``unknown`` gets those that were meant and are not."""
    found = {}
    for name, raw in items.items():
        text = raw.strip()
        if name not in keys:
            if section == "login" and name in _SECRETS:
                problems.append(
                    f"[{section}] {name}: a secret has no place in this file: write it into a file"
                    " of its own that only the portal can read, and name that by client-secret-file"
                )
            else:
                problems.append(
                    f"[{section}] {name}: there is no such key{_nearest(name, list(keys))}"
                )
                unknown.update(keys[near].field for near in _near(name, list(keys)))
            continue
        if not text:
            problems.append(f"[{section}] {name}: the value is missing")
            unknown.add(keys[name].field)
            continue
        try:
            found[keys[name].field] = keys[name].parse(text)
        except ValueError as error:
            problems.append(f"[{section}] {name}: {error}")
            unknown.add(keys[name].field)
    return found


def _login_problems(items: Mapping[str, str], fields: Mapping[str, Any]) -> List[str]:
    by = fields.get("by", "socket" if "by" not in items else "")
    if not by:
        return []
    missing = [name for name in _NEEDS[by] if name not in items]
    problems = [f"[login] {name} is missing: by = {by} needs it" for name in missing]
    for name in items:
        if name in _LOGIN and name != "by" and name not in _BELONGS[by]:
            problems.append(f"[login] {name}: by = {by} does not use it")
    return problems


def _first_line(error: configparser.Error) -> str:
    text = " ".join(str(error.message).split())
    return text.replace("'<string>', ", "").replace("'<string>'", "the file")


def _nearest(word: str, known: List[str]) -> str:
    near = _near(word, known)
    return f"; did you mean {near[0]}?" if near else f"; there is: {', '.join(known)}"


def _near(word: str, known: List[str]) -> List[str]:
    import difflib

    return difflib.get_close_matches(word, known, n=1, cutoff=0.6)
