"""The executor's context: its container, its node, its own files."""

from __future__ import annotations

import json
import os
import socket
from typing import Dict, List, Mapping, NamedTuple, Optional

from tony_core.protocol.link import split_address


class WrongArguments(Exception):
    """The executor was started with wrong arguments or variables."""


class ContainerContext(NamedTuple):
    """The executor's container, its node, and the way to its master."""

    container_id: str
    host: str  # the address peers reach this node by
    master: str  # host:port
    secret: bytes
    work: str  # the container's folder: artifacts by name
    log_dir: str
    program: str  # the folder of tony.py
    master_file: Optional[str]
    successor: Optional[List[str]]
    environment: Dict[str, str]

    @property
    def path(self) -> str:
        """PATH, as programs will have it."""
        return self.environment.get("PATH", "/usr/local/bin:/usr/bin:/bin")

    def log(self, name: str) -> str:
        """A file in the container's log folder."""
        return os.path.join(self.log_dir, name)


def read_context(environment: Mapping[str, str], master: str, runtime: str) -> ContainerContext:
    """Read the context from the environment; raises :class:`WrongArguments`."""
    try:
        split_address(master)
    except ValueError as error:
        raise WrongArguments(f"--master: {error}") from None
    names = ("TONY_CONTAINER_ID", "TONY_LOG_DIR", "TONY_SECRET_FILE")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise WrongArguments(f"missing environment variables: {', '.join(missing)}")
    secret_file = environment["TONY_SECRET_FILE"]
    try:
        with open(secret_file, "rb") as file:
            secret = file.read()
    except OSError as error:
        raise WrongArguments(f"TONY_SECRET_FILE {secret_file}: {error.strerror}") from None
    if not secret:
        raise WrongArguments(f"TONY_SECRET_FILE {secret_file} is empty")
    log_dir = os.path.abspath(environment["TONY_LOG_DIR"])
    try:
        os.makedirs(log_dir, exist_ok=True)
    except OSError as error:
        raise WrongArguments(f"TONY_LOG_DIR {log_dir}: {error.strerror}") from None
    return ContainerContext(
        container_id=environment["TONY_CONTAINER_ID"],
        host=_node(environment) or route_to(master),
        master=master,
        secret=secret,
        work=os.getcwd(),
        log_dir=log_dir,
        program=os.path.join(os.path.abspath(runtime), "program"),
        master_file=environment.get("TONY_MASTER_FILE"),
        successor=_successor(environment.get("TONY_SUCCESSOR")),
        environment={**environment, "HOME": _home(environment, os.getcwd())},
    )


def route_to(master: str) -> str:
    """Our address on the route to the master; sends nothing."""
    host, port = split_address(master)
    try:
        family, _, _, _, where = socket.getaddrinfo(host.encode(), port, 0, socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(where)
            return str(sock.getsockname()[0])
    except OSError:
        return socket.gethostname()


def _home(environment: Mapping[str, str], work: str) -> str:
    """HOME, if it can be written: nodes of a cluster set /home/, on which libraries fail."""
    home = environment.get("HOME", "")
    usable = home.startswith("/") and os.path.isdir(home) and os.access(home, os.W_OK)
    return home if usable else work


def _node(environment: Mapping[str, str]) -> str:
    node = environment.get("TONY_NODE", "")
    host, colon, port = node.rpartition(":")
    # A NodeManager's id is host:port; an address of version 6 holds more colons.
    return host if colon and port.isdigit() and ":" not in host else node


def _successor(text: Optional[str]) -> Optional[List[str]]:
    if not text:
        return None
    try:
        argv = json.loads(text)
    except ValueError:
        argv = None
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise WrongArguments("TONY_SUCCESSOR is not a JSON list of strings")
    return argv
