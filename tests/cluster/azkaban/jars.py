"""Fetches the jars of an Azkaban server into the cache, once.

They are in ``${TONY_CACHE:-...}/azkaban/VERSION/KEY/lib``, where KEY is a hash of their list
(pom.xml); the folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence

from tests.cluster.hadoop.jars import SandboxError, cache_root, fetch_jars, find_java, locked

VERSION = "2.5.0"
"""The last one that Maven Central has whole: web server, executor and database in one jar."""

HEAP_MB = 256

_POM = Path(__file__).with_name("pom.xml")

_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    # A JVM takes its locale's for what a file holds and a child is given, and a service has none.
    "-Dfile.encoding=UTF-8",
    "-Dsun.jnu.encoding=UTF-8",
    # Without it the server cannot read a job's pid, and cancels by other means than users see.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


@dataclass(frozen=True)
class ServerJars:
    """The jars, and the Java to run them with."""

    folder: Path
    java_home: Path

    @property
    def lib(self) -> Path:
        return self.folder / "lib"

    def command(self, before: Sequence[str] = (), flags: Sequence[str] = ()) -> List[str]:
        """A server whose configuration is in ``conf`` below the folder it is started in.

        ``before`` are class paths that come before the server's own, ``flags`` are Java's.
        """
        return [
            str(self.java_home / "bin" / "java"),
            *_FLAGS,
            f"-Xmx{HEAP_MB}m",
            *flags,
            "-classpath",
            ":".join([*before, f"{self.lib}/*"]),
            "azkaban.webapp.AzkabanSingleServer",
            "-conf",
            "conf",
        ]


def server_jars(cache: Optional[Path] = None) -> ServerJars:
    """Fetched if need be."""
    java_home = find_java()
    key = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    parent = (cache or cache_root().absolute()) / "azkaban" / VERSION
    made = ServerJars(parent / key, java_home)
    if not made.folder.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        with locked(parent / f"{key}.lock"):
            if not made.folder.is_dir():
                _make(made, parent)
    return made


def _make(made: ServerJars, parent: Path) -> None:
    for left in parent.glob(f"{made.folder.name}.new-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed: we hold the lock
    scratch = Path(tempfile.mkdtemp(prefix=f"{made.folder.name}.new-", dir=parent))
    try:
        print(f"azkaban: fetching {VERSION} into {made.folder}", file=sys.stderr, flush=True)
        fetch_jars(_POM, scratch / "lib", made.java_home)
        if not (scratch / "lib" / f"azkaban-{VERSION}.jar").is_file():
            raise SandboxError(f"mvn ended well and left no jar of Azkaban {VERSION}")
        scratch.chmod(0o755)
        scratch.rename(made.folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
