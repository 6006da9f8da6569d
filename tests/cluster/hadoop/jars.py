"""Fetches what a Hadoop of one version consists of into the cache, once.

The cache is ``${TONY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tony}/hadoop/VERSION/KEY``, where
KEY is a hash of the list of jars (pom.xml). In it are ``lib/`` (the jars) and ``name/`` (an
empty, formatted file system, so that no cluster has to format its own). A folder appears there
whole or not at all; two who want the same one wait for each other. Beside it may be an archive
of the jars' classes (classes.py), without which everything works as well and starts later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

from tests.cluster.hadoop.site import write_site

VERSIONS = ("3.4.2", "3.3.6")
"""Known to work; the first is the one that one gets."""

FETCH_S = 600
FORMAT_S = 120

_POM = Path(__file__).with_name("pom.xml")
_MADE_BY = "1"  # part of the key: to be changed with what is made below
_SHARED_BY = "1"  # the same of the archive of classes

_JAVA_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.util", "java.net")
    ),
)


class SandboxError(Exception):
    """The cluster cannot be had, with whose fault that is and what to do."""


@dataclass(frozen=True)
class Distribution:
    """The jars of one version, and the Java to run them with."""

    version: str
    folder: Path
    java_home: Path
    flags: Tuple[str, ...] = ()
    """More of them, for every Java."""

    @property
    def lib(self) -> Path:
        return self.folder / "lib"

    @property
    def formatted(self) -> Path:
        """A name directory as a NameNode formats it."""
        return self.folder / "name"

    def jar(self, name: str) -> Path:
        return self.lib / f"{name}-{self.version}.jar"

    def java(
        self, classpath: Sequence[Path], main: str, *, heap_mb: int, flags: Sequence[str] = ()
    ) -> List[str]:
        """The start of a command line; arguments of the program may follow. The class path comes
        after the jars, as the archive of their classes wants it (classes.py)."""
        paths = [f"{self.lib}/*", *map(str, classpath)]
        return [
            str(self.java_home / "bin" / "java"),
            *self.java_flags(),
            f"-Xmx{heap_mb}m",
            *self.flags,
            *flags,
            "-classpath",
            ":".join(paths),
            main,
        ]

    def java_flags(self) -> List[str]:
        """Of every Java, to be small and to start soon."""
        return [*_JAVA_FLAGS, *self._sharing()]

    def _sharing(self) -> List[str]:
        archive = archive_of(self)
        if archive is None:
            return []
        # One that cannot be used is no matter for the standard output of a tool.
        return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


def archive_of(distribution: Distribution) -> Optional[Path]:
    """The archive of these jars' classes for this Java, if it is there and whole (classes.py).

    Java itself may die of one that is too short, and so its name ends in its size.
    """
    name = archive_name(distribution)
    if name is not None:
        for path in distribution.folder.parent.glob(f"{name}-*.jsa"):
            if path.is_file() and path.name == f"{name}-{path.stat().st_size}.jsa":
                return path
    return None


def archive_name(distribution: Distribution) -> Optional[str]:
    """What its name begins with; None where there cannot be one."""
    home, lib = distribution.java_home, distribution.lib
    if (_java_version(home) or 0) < 17:
        return None
    seen = [_SHARED_BY, str(home), str(lib)]
    try:
        seen.append((home / "release").read_text())
        # In the order in which Java puts them on its class path.
        with os.scandir(lib) as entries:
            places = [home / "lib" / "server" / "libjvm.so", *(Path(one) for one in entries)]
        for place in places:
            state = place.stat()
            seen.append(f"{place.name} {state.st_size} {state.st_mtime_ns}")
    except OSError:
        return None
    key = hashlib.sha256("\n".join(seen).encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{distribution.folder.name}.classes-{key}"


def cache_root() -> Path:
    """Where everything fetched goes."""
    if os.environ.get("TONY_CACHE"):
        return Path(os.environ["TONY_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tony"


def distribution(version: str = VERSIONS[0], cache: Optional[Path] = None) -> Distribution:
    """The version asked for, fetched if need be."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SandboxError(
            f"{version!r} is no version of Hadoop; known to work: {', '.join(VERSIONS)}"
        )
    java_home = find_java()
    key = hashlib.sha256(_MADE_BY.encode() + _POM.read_bytes()).hexdigest()[:12]
    parent = (cache or cache_root().absolute()) / "hadoop" / version
    made = Distribution(version, parent / key, java_home)
    if not made.folder.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        with locked(parent / f"{key}.lock"):
            if not made.folder.is_dir():
                _make(made, parent)
    return made


def find_java() -> Path:
    """The home of a Java that Hadoop runs on: 17, else 21 or 11 (the newest lack what it calls)."""
    candidates = [
        Path(home) for name in ("TONY_JAVA_HOME", "JAVA_HOME") if (home := os.environ.get(name))
    ]
    candidates += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    found = {home: version for home in candidates if (version := _java_version(home)) is not None}
    for good in (17, 21, 11):
        for place, version in found.items():
            if version == good:
                return place
    seen = ", ".join(f"{version} in {place}" for place, version in found.items()) or "none at all"
    raise SandboxError(
        f"Hadoop needs Java 17 (21 and 11 do); found {seen}. "
        "On Debian and Ubuntu: apt-get install openjdk-17-jdk-headless; "
        "or name one by TONY_JAVA_HOME."
    )


def _java_version(home: Path) -> Optional[int]:
    """By its release file, which is far quicker than asking the program."""
    try:
        if not os.access(home / "bin" / "java", os.X_OK):
            return None
        match = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Who makes a folder of the cache has it for himself."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(made: Distribution, parent: Path) -> None:
    for left in parent.glob(f"{made.folder.name}.new-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed: we hold the lock
    scratch = Path(tempfile.mkdtemp(prefix=f"{made.folder.name}.new-", dir=parent))
    try:
        print(f"hadoop: fetching {made.version} into {made.folder}", file=sys.stderr, flush=True)
        _fetch(made, scratch)
        _format(Distribution(made.version, scratch, made.java_home))
        scratch.chmod(0o755)
        scratch.rename(made.folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fetch(made: Distribution, target: Path) -> None:
    fetch_jars(_POM, target / "lib", made.java_home, f"-Dhadoop.version={made.version}")
    if not (target / "lib" / f"hadoop-hdfs-{made.version}.jar").is_file():
        raise SandboxError(f"mvn ended well and left no jar of HDFS {made.version}")


def fetch_jars(pom: Path, target: Path, java_home: Path, *settings: str) -> None:
    """What a pom names, and what that needs, into a folder."""
    maven = shutil.which("mvn")
    if maven is None:
        raise SandboxError(
            "the jars are fetched by Maven, and there is no mvn. "
            "On Debian and Ubuntu: apt-get install maven"
        )
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        f"--file={pom}",
        *settings,
        f"-DoutputDirectory={target}",
        "-DincludeScope=runtime",
        "dependency:copy-dependencies",
    ]
    environment = {**os.environ, "JAVA_HOME": str(java_home)}
    run(command, FETCH_S, "fetch the jars", target.parent, environment)


def _format(made: Distribution) -> None:
    conf = made.folder / "format"
    conf.mkdir()
    write_site(conf / "core-site.xml", {"fs.defaultFS": "hdfs://localhost:8020"})
    write_site(conf / "hdfs-site.xml", {"dfs.namenode.name.dir": f"file://{made.formatted}"})
    main = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    command = made.java([conf], main, heap_mb=256)
    command += ["-format", "-nonInteractive", "-clusterid", "CID-sandbox"]
    run(command, FORMAT_S, "format a file system", made.folder, dict(os.environ))
    shutil.rmtree(conf)


def run(
    command: List[str], limit: float, what: str, folder: Path, environment: dict[str, str]
) -> None:
    """Runs a program to its end; an error has its output, or its name when it took too long."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(f"{command[0]} took more than {limit} s to {what}") from None
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise SandboxError(f"{command[0]} could not {what} (exit code {done.returncode}):\n{tail}")
