"""What a secure NodeManager needs beside its jars: Hadoop's native library, and accounts.

A NodeManager of a secure cluster reads a container's log only when the file belongs to the job's
user, and asks the native library who that is; without the library it reads none, so that no log
is shown or aggregated. Hadoop's own artifacts on Maven Central have no such library; one of
Trino's has, and it fits 3.4.2 and 3.3.6. It is kept beside the jars, in the cache's
``hadoop/native-KEY``, where KEY is a hash of native.xml.

The library asks the system for the name of a file's owner. The users of a sandbox have no account,
so a list in the cluster's folder answers instead (nss_wrapper of Debian).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Dict, Mapping, Optional

from tests.cluster.hadoop.jars import Distribution, SandboxError, fetch_jars, locked

_POM = Path(__file__).with_name("native.xml")
_LIBRARY = "libhadoop.so"
_WRAPPER = "libnss_wrapper.so"

_MACHINES = {"x86_64": "Linux-amd64", "aarch64": "Linux-aarch64"}
"""What the jar calls the machines that it has a library for."""


def folder_of(distribution: Distribution) -> Path:
    """Where the library is, or will be when it is fetched."""
    key = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    return distribution.folder.parent.parent / f"native-{key}"


def fetch(distribution: Distribution) -> Path:
    """The folder with the library in it, fetched if need be."""
    folder = folder_of(distribution)
    if (folder / _LIBRARY).is_file():
        return folder
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        known = ", ".join(_MACHINES)
        raise SandboxError(
            f"a secure cluster needs Hadoop's native library, which can be fetched for {known};"
            f" this machine is {platform.machine()}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / _LIBRARY).is_file():
            scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.new-", dir=folder.parent))
            try:
                print(f"hadoop: fetching {_LIBRARY} into {folder}", file=sys.stderr, flush=True)
                _extract(distribution, machine, scratch)
                scratch.chmod(0o755)
                scratch.rename(folder)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _extract(distribution: Distribution, machine: str, target: Path) -> None:
    fetch_jars(_POM, target / "jars", distribution.java_home)
    jars = list((target / "jars").glob("*.jar"))
    if len(jars) != 1:
        raise SandboxError(f"mvn ended well and left {len(jars)} jars with the native library")
    with zipfile.ZipFile(jars[0]) as archive:
        (target / _LIBRARY).write_bytes(archive.read(f"nativelib/{machine}/{_LIBRARY}"))
    shutil.rmtree(target / "jars")


def find_wrapper() -> Optional[str]:
    """The library that answers from a list of accounts, or None."""
    for folder in ("/usr/lib", "/usr/lib64", "/lib"):
        for path in [Path(folder, _WRAPPER), *Path(folder).glob(f"*-linux-gnu/{_WRAPPER}")]:
            if path.is_file():
                return str(path)
    return None


def write_accounts(folder: Path, users: Mapping[str, int]) -> None:
    """The list: this machine's accounts, and users by their number. The first one of a number
    counts, so that a user may take the place of an account."""
    ours = "".join(f"{name}:x:{uid}:{uid}::/:/bin/sh\n" for name, uid in users.items())
    groups = "".join(f"{name}:x:{uid}:\n" for name, uid in users.items() if uid != os.getuid())
    (folder / "passwd").write_text(ours + Path("/etc/passwd").read_text())
    (folder / "group").write_text(groups + Path("/etc/group").read_text())


def environment(folder: Path) -> Dict[str, str]:
    """With which a program believes the list in a folder."""
    return {
        "LD_PRELOAD": find_wrapper() or _WRAPPER,
        "NSS_WRAPPER_PASSWD": str(folder / "passwd"),
        "NSS_WRAPPER_GROUP": str(folder / "group"),
    }
