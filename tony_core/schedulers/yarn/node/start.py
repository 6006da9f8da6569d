"""The verb ``yarn-start``: the first program of every container that TonY starts on YARN.

``yarn-start master ...`` and ``yarn-start executor ...`` run these verbs in the same process, in
the environment that every scheduler gives them. ``yarn-start exec`` replaces the process by the
program that the container's credentials name.

YARN starts a container with its credentials in a file, and with YARN's own variables. YARN writes
the variables of a launch context, unquoted, into a script that ends up in the container's log
folder. So the job's own variables travel in the credentials, packed by :func:`pack`, and with
them the command of ``exec`` and further names of localized files.

The credentials file holds the container's secrets beside the tokens of Hadoop. A program needs the
tokens alone (libhdfs, Spark and other Java clients find them by HADOOP_TOKEN_FILE_LOCATION, and so
does ``import tony``): they get a file of their own, :data:`TOKEN_FILE`.

Python 3.8, standard library only. This runs before every executor, so it does without
``hadoop.credentials``, which would load a megabyte of modules.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tony_core.files.webhdfs import token_file
from tony_core.files.webhdfs.token_file import AM_RM, LOCATION, CredentialsError, TokenEntry

SECRET = "tony.secret"  # noqa: S105 (its name, not its value)
SITE = "tony.site"
ALIAS = "tony.start"
SECRET_FILE = ".tony-secret"  # noqa: S105 (its name)
MASTER_FILE = ".tony-master.json"
TOKEN_FILE = ".tony-tokens"  # noqa: S105 (its name)
TOKEN_FILE_VARIABLE = "TONY_TOKEN_FILE"  # noqa: S105 (its name)
"""The path of the program's tokens, for the master and the executor; empty if there are none."""

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as in every shell

_VERBS = {
    "master": "tony_core.master.main",
    "executor": "tony_executor.main",
    "probe": "tony_core.schedulers.yarn.node.probe",
}
_USAGE = 2
_PACKED = {"env": dict, "argv": list, "links": dict}


class JobCredentialsError(ValueError):
    """A container's credentials hold no job, or cannot be read."""


def pack(
    env: Mapping[str, str], argv: Sequence[str] = (), links: Optional[Mapping[str, str]] = None
) -> bytes:
    """Pack the job's variables, the command of ``exec`` and the symbolic links of the container's
    folder (name to target) for the credentials."""
    packed = {"env": dict(env), "argv": list(argv), "links": dict(links or {})}
    return zlib.compress(json.dumps(packed, separators=(",", ":")).encode())


def main(argv: Sequence[str]) -> int:
    """Prepare the container, then run the verb; returns the exit code."""
    if not argv or argv[0] not in (*_VERBS, "exec"):
        sys.stderr.write("usage: yarn-start master|executor|probe|exec ...\n")
        return _USAGE
    try:
        tokens, secrets = read_container_credentials(os.environ)
        packed = unpack(secrets.get(ALIAS))
        for name, target in packed["links"].items():
            os.symlink(target, name)
    except (OSError, ValueError) as error:
        sys.stderr.write("yarn-start: %s\n" % error)
        return _USAGE
    os.environ.update(packed["env"])
    os.environ.update(container_environment(os.environ, os.getcwd(), find_next=SITE in secrets))
    os.environ[TOKEN_FILE_VARIABLE] = write_program_tokens(os.path.abspath(TOKEN_FILE), tokens)
    if argv[0] not in ("master", "probe"):
        write_secret(SECRET_FILE, secrets.get(SECRET, b""))
    if argv[0] == "exec":
        return _exec_program(packed["argv"])
    module = _VERBS[argv[0]]
    __import__(module)
    return int(sys.modules[module].main(argv[1:]) or 0)


def read_container_credentials(
    env: Mapping[str, str],
) -> Tuple[List[TokenEntry], Dict[str, bytes]]:
    """The tokens and secrets in this container's credentials file."""
    path = env.get(LOCATION)
    if not path:
        raise ValueError("%s is not set: this process does not run in a YARN container" % LOCATION)
    with open(path, "rb") as file:
        return parse_credentials(file.read())


def write_program_tokens(path: str, tokens: Sequence[TokenEntry]) -> str:
    """Write a program's token file; returns its path, empty if a program needs none."""
    wanted = [token for token in tokens if token.kind != AM_RM]
    if not wanted:
        return ""
    token_file.write_private(path, token_file.encode(wanted, {}))
    return path


def container_environment(env: Mapping[str, str], folder: str, find_next: bool) -> Dict[str, str]:
    """The variables that every scheduler gives its containers, derived from YARN's."""
    container = env.get("CONTAINER_ID", "")
    found = {
        "TONY_APP_ID": application_id_of(container),
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


def application_id_of(container: str) -> str:
    """The id in ``container_e17_1700000000000_0042_01_000003``."""
    parts = container.split("_")
    if len(parts) < 5 or parts[0] != "container":
        return ""
    return "application_%s_%s" % (parts[-4], parts[-3])


def write_secret(path: str, secret: bytes) -> None:
    """Replace a file by one that only its owner may read, whatever the umask."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(secret)


def unpack(data: Any) -> Dict[str, Any]:
    """Undo :func:`pack`; empty parts for credentials without this secret."""
    if not data:
        return {"env": {}, "argv": [], "links": {}}
    packed = json.loads(zlib.decompress(data).decode())
    return {name: kind(packed.get(name, ())) for name, kind in _PACKED.items()}


def _exec_program(argv: List[str]) -> int:
    """Replace this process by the program; returns only when that fails, with the exit code."""
    if not argv:
        sys.stderr.write("yarn-start exec: the credentials name no program\n")
        return _USAGE
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        sys.stderr.write("cannot start %s: there is no such program\n" % argv[0])
        return NOT_FOUND
    except OSError as error:
        sys.stderr.write("cannot start %s: %s\n" % (argv[0], error.strerror))
        return NOT_EXECUTABLE


def parse_credentials(data: bytes) -> Tuple[List[TokenEntry], Dict[str, bytes]]:
    """The tokens and secrets of a credentials file; raises :class:`JobCredentialsError`."""
    try:
        if data[:5] != token_file.MAGIC + b"\1":
            return token_file.parse(data)
        from tony_core.hadoop.credentials import Credentials

        found = Credentials.decode(data)
    except CredentialsError as error:
        raise JobCredentialsError(str(error)) from None
    return [TokenEntry(alias, *token) for alias, token in found.tokens.items()], dict(found.secrets)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
