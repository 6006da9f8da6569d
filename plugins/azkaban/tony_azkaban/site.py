"""What the server's administrator says of every job: ``site.properties`` beside the job type.

A job cannot reach it: Azkaban lets a job override whatever stands in the job type's own
properties, so nothing that a job must not decide may stand there.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Tuple

from tony_azkaban.properties import PropertiesError, Property, parse
from tony_core.dataclass import dataclass, field
from tony_core.job.problems import JobError, Problem, did_you_mean
from tony_core.job.units import ENV_NAME, parse_duration_s

FILE = "site.properties"
CONF_FOLDER = "conf"  # beside it: where tony-site.xml may stand
DEFAULT, FINAL = "tony.", "final.tony."
WORDS = (
    "hadoop.conf.dir",
    "conf.dir",
    "queues",
    "user.to.proxy",
    "user.to.proxy.denied",
    "server.name",
    "server.url",
    "lease",
    "cancel.within",
)
ENV = "env."
HONOUR, IGNORE, REFUSE = "honour", "ignore", "refuse"
DENIED = ("root", "hdfs", "yarn", "mapred")  # who may do anything to a cluster
LEASE_S = 120.0
CANCEL_S = 3.0
#: A server kills what does not end: 2.5 and 3.0 after 5 s, later ones after 30 s.
LONGEST_CANCEL_S = 25.0


@dataclass(frozen=True)
class Site:
    """Read from the file; with nothing said, these defaults."""

    file: str = FILE
    hadoop_conf: Optional[str] = None
    tony_conf: Optional[str] = None
    queues: Tuple[str, ...] = ()  # none named: every queue
    proxy: str = HONOUR
    denied: Tuple[str, ...] = DENIED
    server_name: str = ""
    server_url: str = ""
    lease_s: Optional[float] = LEASE_S
    cancel_s: float = CANCEL_S
    defaults: Mapping[str, str] = field(default_factory=dict)  # tony.* below the job's own
    finals: Mapping[str, str] = field(default_factory=dict)  # tony.* that no job changes
    environment: Mapping[str, str] = field(default_factory=dict)  # of our own process


def read(home: Optional[str]) -> Site:
    """The site of a job type's folder; JobError with every problem, for the administrator."""
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
        self._words: Dict[str, Property] = {}

    def site(self, lines: List[Property]) -> Site:
        defaults: Dict[str, str] = {}
        finals: Dict[str, str] = {}
        environment: Dict[str, str] = {}
        for line in lines:
            if line.key.startswith(FINAL):
                finals[line.key[len("final.") :]] = line.value
            elif line.key.startswith(DEFAULT):
                defaults[line.key] = line.value
            elif line.key.startswith(ENV):
                environment[line.key[len(ENV) :]] = self._variable(line)
            elif line.key in WORDS:
                self._words[line.key] = line
            else:
                near = did_you_mean(line.key, WORDS)
                self._problem(f"is nothing that the job type knows{near}", line)
        site = Site(
            file=self._path,
            hadoop_conf=self._folder("hadoop.conf.dir"),
            tony_conf=self._folder("conf.dir") or self._conf_dir,
            queues=self._list("queues"),
            proxy=self._proxy(),
            denied=self._list("user.to.proxy.denied", DENIED),
            server_name=self._text("server.name"),
            server_url=self._url("server.url"),
            lease_s=self._duration("lease", LEASE_S),
            cancel_s=self._cancel(),
            defaults=defaults,
            finals=finals,
            environment=environment,
        )
        if self._problems:
            raise JobError(self._problems)
        return site

    def _variable(self, line: Property) -> str:
        if ENV_NAME.fullmatch(line.key[len(ENV) :]) is None:
            self._problem("is not a name for an environment variable", line)
        try:
            fits = b"\0" not in os.fsencode(line.value)
        except UnicodeEncodeError:
            fits = False
        if not fits:
            self._problem("a variable cannot have this value", line)
        return line.value

    def _text(self, word: str) -> str:
        found = self._words.get(word)
        return found.value.strip() if found is not None else ""

    def _list(self, word: str, default: Tuple[str, ...] = ()) -> Tuple[str, ...]:
        if word not in self._words:
            return default
        return tuple(item.strip() for item in self._text(word).split(",") if item.strip())

    def _folder(self, word: str) -> Optional[str]:
        path = self._text(word)
        if not path:
            return None
        if not os.path.isabs(path) or not os.path.isdir(path):
            what = "is no folder" if os.path.isabs(path) else "must be an absolute path"
            self._problem(f"{path} {what}", self._words[word])
        return path

    def _url(self, word: str) -> str:
        from tony_azkaban.execution import host_of

        url = self._text(word).rstrip("/")
        try:
            if url:
                host_of(url)
        except ValueError as error:
            self._problem(f"{url} is no address of a server: {error}", self._words[word])
        return url

    def _proxy(self) -> str:
        said = self._text("user.to.proxy").lower() or HONOUR
        if said not in (HONOUR, IGNORE, REFUSE):
            self._problem(
                f"{said!r} is none of {HONOUR}, {IGNORE}, {REFUSE}", self._words["user.to.proxy"]
            )
        return said

    def _cancel(self) -> float:
        seconds = self._duration("cancel.within", CANCEL_S) or CANCEL_S
        if not 1.0 <= seconds <= LONGEST_CANCEL_S:
            self._problem(
                f"a cancelled job is ended within 1 s to {LONGEST_CANCEL_S:g} s",
                self._words["cancel.within"],
            )
        return seconds

    def _duration(self, word: str, default: float) -> Optional[float]:
        text = self._text(word)
        if not text:
            return default
        try:
            return parse_duration_s(text, "s")
        except ValueError as error:
            self._problem(str(error), self._words[word])
            return default

    def _problem(self, message: str, line: Property) -> None:
        self._problems.append(Problem(message, line.key, self._path, line.line))
