"""What a cluster consists of, decided before anything is started.

A plan goes through three hands: features that say how many of what there are (``shape``), the
base configuration made for these numbers (here), and features that add to the configuration.
Then it is written into the cluster's folder:

    conf/           what a client reads (HADOOP_CONF_DIR)
    conf.d/DAEMON/  what one daemon reads first: its own files instead of those of conf/
    home/           HADOOP_HOME, with features that need one
    data/DAEMON/    what it keeps
    logs/DAEMON.log what it says
    cluster.json    the daemons' command lines, for the supervisor and for who comes later

Every node has a loopback address of its own (127.0.0.1, 127.0.0.2, ...) and is a host of its
own for YARN; the daemons see names through ``hosts`` alone, so that whatever the machine's own
resolver makes of these addresses does not matter.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

from tests.cluster.hadoop.jars import Distribution
from tests.cluster.hadoop.site import Properties, write_site

LOOPBACK = "127.0.0.1"

NODE_MEMORY_MB = 16384
NODE_VCORES = 256
"""More than the machine may have: containers of tests are small and many."""

_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""

_WEB_APP = '<web-app xmlns="http://java.sun.com/xml/ns/javaee" version="2.5"></web-app>\n'


class Ports:
    """Free ports, kept free: a bound socket that never listens lets only those in that reuse
    addresses, as Java's servers do, so that no process takes the port before its daemon starts or
    while it restarts."""

    def __init__(self) -> None:
        self.sockets: List[socket.socket] = []

    def take(self, host: str = LOOPBACK) -> int:
        """A port that is this cluster's as long as the sockets are open."""
        one = socket.socket()
        self.sockets.append(one)
        one.bind((host, 0))
        # Only now: with this option set before, two clusters might be given the same port.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return int(one.getsockname()[1])

    def close(self) -> None:
        for one in self.sockets:
            one.close()


@dataclass
class Daemon:
    """One process, a JVM but for Kerberos's."""

    name: str
    main: str
    heap_mb: int = 384
    host: str = LOOPBACK
    web: str = ""
    rpc: str = ""
    arguments: List[str] = field(default_factory=list)
    flags: List[str] = field(default_factory=list)
    own: Dict[str, Properties] = field(default_factory=dict)
    """By file: what this one reads differently from conf/."""
    argv: List[str] = field(default_factory=list)
    """The whole command line of one that is no JVM."""
    environment: Dict[str, str] = field(default_factory=dict)
    """What this one has beyond what all have."""


@dataclass(frozen=True)
class Folder:
    """A folder of HDFS that is made when the cluster is up."""

    path: str
    owner: str
    group: str
    permission: str


@dataclass
class Plan:
    """See the module."""

    folder: Path
    distribution: Distribution
    ports: Ports
    features: Sequence[str] = ()
    node_count: int = 1
    rm_count: int = 1
    nn_count: int = 1
    sites: Dict[str, Properties] = field(default_factory=dict)
    daemons: Dict[str, Daemon] = field(default_factory=dict)
    labels: Dict[str, bool] = field(default_factory=dict)
    """Node labels and whether each is exclusive; they are made when the cluster is up."""
    node_labels: Dict[str, str] = field(default_factory=dict)
    """By the daemon's name."""
    extra_files: Dict[str, str] = field(default_factory=dict)
    """Other files of conf/, by name."""
    programs: Dict[str, str] = field(default_factory=dict)
    """Scripts below home/, which is HADOOP_HOME where there is one."""
    links: Dict[str, Path] = field(default_factory=dict)
    """Links below home/."""
    client: Dict[str, str] = field(default_factory=dict)
    """What else a client's environment has, by name."""
    flags: List[str] = field(default_factory=list)
    """Of every Java of this cluster, its clients' too."""
    preparations: List[Callable[[], None]] = field(default_factory=list)
    """What is done in the folder once everything is written, before the first daemon starts."""
    hdfs_folders: List[Folder] = field(default_factory=list)

    @property
    def user(self) -> str:
        return getpass.getuser()

    def site(self, name: str) -> Properties:
        return self.sites.setdefault(name, {})

    def role(self, prefix: str) -> List[Daemon]:
        """The daemons of a kind in order: ``nm`` gives nm0, nm1, ..."""
        return [one for name, one in self.daemons.items() if name.rstrip("0123456789") == prefix]

    def data(self, daemon: str) -> Path:
        return self.folder / "data" / daemon

    def address(self, host: str = "localhost", bind: str = LOOPBACK) -> str:
        return f"{host}:{self.ports.take(bind)}"

    def own(self, daemon: str, file: str) -> Properties:
        return self.daemons[daemon].own.setdefault(file, {})

    def add(self, daemon: Daemon) -> Daemon:
        self.daemons[daemon.name] = daemon
        return daemon

    # ------------------------------------------------------------------ writing

    def write(self) -> None:
        """Everything that the daemons find when they start."""
        conf = self.folder / "conf"
        conf.mkdir()
        for file, properties in self.sites.items():
            write_site(conf / f"{file}.xml", properties)
        for name, text in self.extra_files.items():
            (conf / name).write_text(text)
        (conf / "log4j.properties").write_text(_LOG4J)
        self._write_home()
        for app in ("hdfs", "datanode", "secondary"):
            # The jars of HDFS lack these, and their web servers want them.
            place = self.folder / "classes" / "webapps" / app / "WEB-INF"
            place.mkdir(parents=True)
            (place / "web.xml").write_text(_WEB_APP)
        self._write_hosts()
        (self.folder / "logs").mkdir()
        for daemon in self.daemons.values():
            self.data(daemon.name).mkdir(parents=True)
            own = self.folder / "conf.d" / daemon.name
            own.mkdir(parents=True)
            for file, properties in daemon.own.items():
                write_site(own / f"{file}.xml", {**self.sites.get(file, {}), **properties})
        for daemon in self.role("nn"):
            shutil.copytree(self.distribution.formatted, self.data(daemon.name) / "name")
        if self.nn_count > 1:
            # The same again for the edits that the two share, and these hold no image.
            unwanted = shutil.ignore_patterns("fsimage*")
            shutil.copytree(self.distribution.formatted, self.data("edits"), ignore=unwanted)
        for prepare in self.preparations:
            prepare()
        (self.folder / "cluster.json").write_text(json.dumps(self.description(), indent=1))

    def description(self) -> Dict[str, Any]:
        """What cluster.json says."""
        return {
            "version": self.distribution.version,
            "features": list(self.features),
            "jars": str(self.distribution.folder),
            "java_home": str(self.distribution.java_home),
            "labels": self.labels,
            "node_labels": self.node_labels,
            "flags": self.flags,
            "hdfs_folders": [asdict(folder) for folder in self.hdfs_folders],
            "environment": self._environment(),
            "client": {"HADOOP_CONF_DIR": str(self.folder / "conf"), **self.client},
            "daemons": {
                daemon.name: {
                    "argv": self.command(daemon),
                    "log": str(self.folder / "logs" / f"{daemon.name}.log"),
                    "host": daemon.host,
                    "rpc": daemon.rpc,
                    "web": daemon.web,
                }
                for daemon in self.daemons.values()
            },
        }

    def command(self, daemon: Daemon) -> List[str]:
        settings = [f"{name}={value}" for name, value in daemon.environment.items()]
        start = ["/usr/bin/env", *settings] if settings else []
        return [*start, *(daemon.argv or self._java(daemon))]

    def _java(self, daemon: Daemon) -> List[str]:
        paths = [
            self.folder / "conf.d" / daemon.name,
            self.folder / "conf",
            self.folder / "classes",
        ]
        flags = [
            f"-Djdk.net.hosts.file={self.folder / 'hosts'}",
            f"-Djava.io.tmpdir={self.data(daemon.name)}",
            f"-Dhadoop.log.dir={self.folder / 'logs'}",
            *self.flags,
            *daemon.flags,
        ]
        start = self.distribution.java(paths, daemon.main, heap_mb=daemon.heap_mb, flags=flags)
        return [*start, *daemon.arguments]

    def _environment(self) -> Dict[str, str]:
        """What the daemons, and so the containers, have of ours: enough to find programs."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TZ") if name in os.environ}
        venv = os.environ.get("VIRTUAL_ENV")
        path = os.environ.get("PATH", "").split(":")
        return {
            **kept,
            "USER": self.user,
            "LOGNAME": self.user,
            "JAVA_HOME": str(self.distribution.java_home),
            # A virtual environment around the tests is not on the nodes of a cluster.
            "PATH": ":".join(p for p in path if p and not (venv and p.startswith(venv)))
            or "/usr/local/bin:/usr/bin:/bin",
        }

    def _write_home(self) -> None:
        home = self.folder / "home"
        for name, text in self.programs.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
            (home / name).chmod(0o755)
        for name, target in self.links.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(target)

    def _write_hosts(self) -> None:
        lines = [f"{LOOPBACK} localhost", f"{LOOPBACK} {socket.gethostname()}"]
        lines += sorted({f"{daemon.host} {daemon.host}" for daemon in self.daemons.values()})
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True)
class Feature:
    """What a cluster can be asked to have; ``shape``: it changes how many daemons there are."""

    name: str
    text: str
    apply: Callable[[Plan], None]
    shape: bool
    needs: Tuple[str, ...]


FEATURES: Dict[str, Feature] = {}
"""All of them, in the order in which they apply."""


def feature(*needs: str, shape: bool = False) -> Callable[[Callable[[Plan], None]], None]:
    """Make a function a feature, by the function's name."""

    def register(apply: Callable[[Plan], None]) -> None:
        text = " ".join((apply.__doc__ or "").split())
        name = apply.__name__
        FEATURES[name] = Feature(name, text, apply, shape, needs)

    return register
