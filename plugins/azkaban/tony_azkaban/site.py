"""The administrator's settings for all jobs: ``site.properties`` in the job type's folder.

A job cannot override them. It can override everything in the job type's own properties, so those
hold nothing that a job must not decide.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from tony_azkaban.execution import host_of
from tony_azkaban.java_properties import PropertiesError, Property, parse
from tony_core.job.problems import JobError, Problem, did_you_mean
from tony_core.job.units import ENV_NAME, parse_duration_s

FILE = "site.properties"
CONF_FOLDER = "conf"  # beside it: where tony-site.xml may stand
DEFAULT, FINAL = "tony.", "final.tony."
SETTINGS = (
    "hadoop.conf.dir",
    "conf.dir",
    "queues",
    "user.to.proxy",
    "user.to.proxy.denied",
    "login",
    "readable.keytab",
    "server.name",
    "server.url",
    "lease",
    "cancel.within",
)
ENV = "env."
HONOUR, IGNORE, REFUSE = "honour", "ignore", "refuse"
ACCEPT = "accept"
TICKET, TOKENS = "ticket", "tokens"
READABLE_KEYTAB = "readable.keytab"
#: Keys and variables of a login that every job could use as its own (:mod:`tony_azkaban.login`).
LOGIN_KEYS = "tony.kerberos."
LOGIN_VARIABLES = (
    "TONY_KERBEROS_PRINCIPAL",
    "TONY_KERBEROS_KEYTAB",
    "HADOOP_PROXY_USER",
    "HADOOP_TOKEN_FILE_LOCATION",
)
DENIED = ("root", "hdfs", "yarn", "mapred")  # superusers of a cluster
LEASE_S = 120.0
CANCEL_S = 3.0
#: A server sends SIGKILL: 2.5 and 3.0 after 5 s, later ones after 30 s.
LONGEST_CANCEL_S = 25.0


class Site(NamedTuple):
    """The settings, with their defaults."""

    file: str = FILE
    hadoop_conf: Optional[str] = None
    tony_conf: Optional[str] = None
    queues: Tuple[str, ...] = ()  # empty: every queue
    proxy: str = HONOUR
    denied: Tuple[str, ...] = DENIED
    login: str = TICKET
    accepts_readable_keytab: bool = False
    server_name: str = ""
    server_url: str = ""
    lease_s: Optional[float] = LEASE_S
    cancel_s: float = CANCEL_S
    defaults: Mapping[str, str] = MappingProxyType({})  # tony.* below the job's own
    finals: Mapping[str, str] = MappingProxyType({})  # tony.* that no job changes
    environment: Mapping[str, str] = MappingProxyType({})  # of the program that submits


def read(home: Optional[str]) -> Site:
    """Read the settings in a job type's folder; JobError with every problem."""
    if not home:
        return Site()
    path = os.path.join(home, FILE)
    conf = os.path.join(home, CONF_FOLDER)
    conf_dir = conf if os.path.isdir(conf) else None
    try:
        with open(path, "rb") as file:
            text = file.read().decode("latin-1")
    except FileNotFoundError:
        return Site(path, tony_conf=conf_dir)
    except OSError as error:
        raise JobError([Problem(f"cannot be read: {error.strerror}", file=path)]) from None
    try:
        lines = parse(text)
    except PropertiesError as error:
        raise JobError([Problem(str(error), file=path, line=error.line)]) from None
    return _Reader(path, conf_dir).site(lines)


class _Reader:
    def __init__(self, path: str, conf_dir: Optional[str]) -> None:
        self._path = path
        self._conf_dir = conf_dir
        self._problems: List[Problem] = []
        self._settings: Dict[str, Property] = {}

    def site(self, lines: List[Property]) -> Site:
        defaults: Dict[str, str] = {}
        finals: Dict[str, str] = {}
        environment: Dict[str, str] = {}
        for line in lines:
            if _is_login(line.key):
                self._problem(
                    "every job could use this login as its own: jobs log in by a ticket or by the"
                    " server's tokens (login)",
                    line,
                )
            elif line.key.startswith(FINAL):
                finals[line.key[len("final.") :]] = line.value
            elif line.key.startswith(DEFAULT):
                defaults[line.key] = line.value
            elif line.key.startswith(ENV):
                environment[line.key[len(ENV) :]] = self._variable(line)
            elif line.key in SETTINGS:
                self._settings[line.key] = line
            else:
                near = did_you_mean(line.key, SETTINGS)
                self._problem(f"unknown setting{near}", line)
        site = Site(
            file=self._path,
            hadoop_conf=self._folder("hadoop.conf.dir"),
            tony_conf=self._folder("conf.dir") or self._conf_dir,
            queues=self._list("queues"),
            proxy=self._choice("user.to.proxy", HONOUR, (HONOUR, IGNORE, REFUSE)),
            denied=self._list("user.to.proxy.denied", DENIED),
            login=self._choice("login", TICKET, (TICKET, TOKENS)),
            accepts_readable_keytab=self._choice(READABLE_KEYTAB, REFUSE, (REFUSE, ACCEPT))
            == ACCEPT,
            server_name=self._text("server.name"),
            server_url=self._url("server.url"),
            lease_s=self._duration("lease", LEASE_S),
            cancel_s=self._cancel(),
            defaults=defaults,
            finals=finals,
            environment=environment,
        )
        if site.login == TOKENS and site.proxy in (IGNORE, REFUSE):
            self._problem(
                f"{site.proxy} does not go with login={TOKENS}: the server obtains them for the"
                f" job's user.to.proxy. Expected {HONOUR}",
                self._settings["user.to.proxy"],
            )
        if self._problems:
            raise JobError(self._problems)
        return site

    def _variable(self, line: Property) -> str:
        if ENV_NAME.fullmatch(line.key[len(ENV) :]) is None:
            self._problem("is not the name of an environment variable", line)
        try:
            fits = b"\0" not in os.fsencode(line.value)
        except UnicodeEncodeError:
            fits = False
        if not fits:
            self._problem("a variable cannot have this value", line)
        return line.value

    def _text(self, name: str) -> str:
        found = self._settings.get(name)
        return found.value.strip() if found is not None else ""

    def _list(self, name: str, default: Tuple[str, ...] = ()) -> Tuple[str, ...]:
        if name not in self._settings:
            return default
        return tuple(item.strip() for item in self._text(name).split(",") if item.strip())

    def _folder(self, name: str) -> Optional[str]:
        path = self._text(name)
        if not path:
            return None
        if not os.path.isabs(path) or not os.path.isdir(path):
            what = "is not a folder" if os.path.isabs(path) else "must be an absolute path"
            self._problem(f"{path} {what}", self._settings[name])
        return path

    def _url(self, name: str) -> str:
        url = self._text(name).rstrip("/")
        try:
            if url:
                host_of(url)
        except ValueError as error:
            self._problem(f"{url} is not a server's address: {error}", self._settings[name])
        return url

    def _choice(self, name: str, default: str, choices: Tuple[str, ...]) -> str:
        value = self._text(name).lower() or default
        if value not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            self._problem(f"{value!r}: expected {expected}", self._settings[name])
        return value

    def _cancel(self) -> float:
        seconds = self._duration("cancel.within", CANCEL_S) or CANCEL_S
        if not 1.0 <= seconds <= LONGEST_CANCEL_S:
            self._problem(
                f"expected 1 s to {LONGEST_CANCEL_S:g} s",
                self._settings["cancel.within"],
            )
        return seconds

    def _duration(self, name: str, default: float) -> Optional[float]:
        text = self._text(name)
        if not text:
            return default
        try:
            return parse_duration_s(text, "s")
        except ValueError as error:
            self._problem(str(error), self._settings[name])
            return default

    def _problem(self, message: str, line: Property) -> None:
        self._problems.append(Problem(message, line.key, self._path, line.line))


def _is_login(key: str) -> bool:
    plain = key.removeprefix("final.")
    return plain.startswith(LOGIN_KEYS) or (
        key.startswith(ENV) and key[len(ENV) :] in LOGIN_VARIABLES
    )
