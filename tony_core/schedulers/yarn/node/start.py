"""The verb ``yarn-start``: what YARN starts in a container of ours.

``yarn-start master ...``, ``yarn-start executor ...``: those verbs, in this process, with the
environment that every scheduler gives them. ``yarn-start exec``: the program that stands in the
credentials, in our place.

YARN starts a container with its credentials in a file and its own variables. A variable of a
launch context is written into a script that ends up in the container's log folder, and unquoted;
so the job's own variables (and what ``exec`` is to run) travel in the credentials, packed by
:func:`pack`; with them the further names of files that YARN brings under one name only.

Python 3.8: this runs before every executor.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tony_core.schedulers.yarn.node import secretfile

ALIAS = "tony.start"
LOCATION = "HADOOP_TOKEN_FILE_LOCATION"
SECRET_FILE = ".tony-secret"  # noqa: S105 (its name)
MASTER_FILE = ".tony-master.json"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as every shell says it

_VERBS = {
    "master": "tony_core.master.main",
    "executor": "tony_executor.main",
    "probe": "tony_core.schedulers.yarn.node.probe",
}
_USAGE = 2
_PACKED = {"env": dict, "argv": list, "links": dict}


def pack(
    env: Mapping[str, str], argv: Sequence[str] = (), links: Optional[Mapping[str, str]] = None
) -> bytes:
    """For the credentials: the job's variables, what to run instead of us, and the links to make
    in the container's folder, each by its name."""
    told = {"env": dict(env), "argv": list(argv), "links": dict(links or {})}
    return zlib.compress(json.dumps(told, separators=(",", ":")).encode())


def main(argv: Sequence[str]) -> int:
    """Be what YARN was asked to start."""
    if not argv or argv[0] not in (*_VERBS, "exec"):
        sys.stderr.write("usage: yarn-start master|executor|probe|exec ...\n")
        return _USAGE
    try:
        secrets = read_secrets(os.environ)
        told = _told(secrets.get(ALIAS))
        for name, target in told["links"].items():
            os.symlink(target, name)
    except (OSError, ValueError) as error:
        sys.stderr.write("yarn-start: %s\n" % error)
        return _USAGE
    os.environ.update(told["env"])
    os.environ.update(surroundings(os.environ, os.getcwd(), find_next=secretfile.SITE in secrets))
    if argv[0] not in ("master", "probe"):
        write_secret(SECRET_FILE, secrets.get(secretfile.SECRET, b""))
    if argv[0] == "exec":
        return _become(told["argv"])
    module = _VERBS[argv[0]]
    __import__(module)
    return int(sys.modules[module].main(argv[1:]) or 0)


def read_secrets(env: Mapping[str, str]) -> Dict[str, bytes]:
    """The named bytes in this container's credentials."""
    path = env.get(LOCATION)
    if not path:
        raise ValueError("%s is not set: this is no container of YARN" % LOCATION)
    with open(path, "rb") as file:
        return secretfile.read_secrets(file.read())


def surroundings(env: Mapping[str, str], folder: str, find_next: bool) -> Dict[str, str]:
    """What every scheduler tells its containers, from what YARN tells them."""
    container = env.get("CONTAINER_ID", "")
    found = {
        "TONY_APP_ID": application_of(container),
        "TONY_CONTAINER_ID": container,
        "TONY_NODE": env.get("NM_HOST", ""),
        "TONY_LOG_DIR": env.get("LOG_DIRS", "").split(",")[0] or folder,
        "TONY_SECRET_FILE": os.path.join(folder, SECRET_FILE),
    }
    if find_next:
        runtime = os.path.dirname(os.path.abspath(sys.argv[0])) or folder
        if os.path.isdir(sys.argv[0]):
            runtime = os.path.abspath(sys.argv[0])
        found["TONY_MASTER_FILE"] = os.path.join(folder, MASTER_FILE)
        found["TONY_SUCCESSOR"] = json.dumps(
            [sys.executable, "-I", "-S", runtime, "yarn-find-master"]
        )
    return found


def application_of(container: str) -> str:
    """The id in ``container_e17_1700000000000_0042_01_000003``."""
    parts = container.split("_")
    if len(parts) < 5 or parts[0] != "container":
        return ""
    return "application_%s_%s" % (parts[-4], parts[-3])


def write_secret(path: str, secret: bytes) -> None:
    """A file that its owner alone may read, whatever the umask and whatever was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(secret)


def _told(data: Any) -> Dict[str, Any]:
    """What :func:`pack` packed; nothing is nothing."""
    if not data:
        return {"env": {}, "argv": [], "links": {}}
    told = json.loads(zlib.decompress(data).decode())
    return {name: kind(told.get(name, ())) for name, kind in _PACKED.items()}


def _become(argv: List[str]) -> int:
    """That program; an exit code when it cannot be."""
    if not argv:
        sys.stderr.write("yarn-start exec: the credentials do not say what\n")
        return _USAGE
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        sys.stderr.write("cannot start %s: there is no such program\n" % argv[0])
        return NOT_FOUND
    except OSError as error:
        sys.stderr.write("cannot start %s: %s\n" % (argv[0], error.strerror))
        return NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
