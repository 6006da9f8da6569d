"""Fetches the JVM TonY's jar into the cache, once, and runs what reads and writes history by it.

It is in ``${TONY_CACHE:-...}/jvm-tony/VERSION/KEY``, where KEY is a hash of the list (pom.xml); the
folder appears whole or not at all. Hadoop's classes come from the sandbox's Hadoop.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import List

from tests.cluster.hadoop.jars import (
    SandboxError,
    cache_root,
    distribution,
    fetch_jars,
    find_java,
    locked,
)

VERSIONS = ("0.4.7", "0.3.25")
"""The newest on Maven Central, and the last one before a container's id could be missing."""

_POM = Path(__file__).with_name("pom.xml")
_PROGRAM = Path(__file__).with_name("JvmHistory.java")
_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_RUN_S = 120


def jvm_tony(version: str) -> Path:
    """The folder with its jars, fetched if need be."""
    java_home = find_java()
    key = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    parent = cache_root().absolute() / "jvm-tony" / version
    made = parent / key
    if made.is_dir():
        return made
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent / f"{key}.lock"):
        if not made.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=f"{key}.new-", dir=parent))
            try:
                fetch_jars(_POM, scratch, java_home, f"-Dtony.version={version}")
                if not (scratch / f"tony-core-{version}.jar").is_file():
                    raise SandboxError(f"mvn ended well and left no jar of the JVM TonY {version}")
                scratch.chmod(0o755)
                scratch.rename(made)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return made


def run_history(version: str, verb: str, folder: Path) -> List[List[str]]:
    """Run JvmHistory.java on a job's folder; what it prints, each line cut at its tabs."""
    hadoop = distribution()
    command = [
        str(find_java() / "bin" / "java"),
        *_FLAGS,
        "-classpath",
        f"{jvm_tony(version)}/*:{hadoop.lib}/*",  # its own Avro, which its classes were made by
        str(_PROGRAM),
        verb,
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return [line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line]
