"""``tony.ray_init()``: this task as a node of the job's Ray cluster.

Without dependencies of its own, beside tony.py; Ray is the program's.

The head's program is the driver. The others run nothing but Ray, and end with success when the
head does not answer any more: whether the job succeeded is the head's result. A node that ends
while the head answers has failed.
"""

from __future__ import annotations

import atexit
import importlib
import os
import socket
import subprocess
import sys
import time
from typing import Any, List, Tuple

_START_S = 300.0  # for the head to answer, and for all nodes to be there
_POLL_S = 0.5
_MISSED = 6  # polls without an answer, one after the other
_END_S = 5.0  # for a node to end by SIGTERM


def init(**more: Any) -> None:
    """Start this task's node. Returns in the head, once all nodes are there; elsewhere the program
    ends with the head."""
    env = os.environ
    if "TONY_RAY_RANK" not in env:
        importlib.import_module("ray").init(**more)
        return
    host, _, port = env["RAY_ADDRESS"].rpartition(":")
    head = (host, int(port))
    if int(env["TONY_RAY_RANK"]) != 0:
        raise SystemExit(_serve(head))
    node = _start(["--head", f"--port={port}", "--include-dashboard=false"])
    atexit.register(_end, node)
    _wait_for(head, node)
    ray = importlib.import_module("ray")
    ray.init(**{"address": env["RAY_ADDRESS"], **more})
    _wait_for_nodes(ray, int(env["TONY_RAY_NODES"]), node)


def _serve(head: Tuple[str, int]) -> int:
    """Run a node until the head is gone; returns the exit code."""
    _wait_for(head, None)
    node = _start([f"--address={os.environ['RAY_ADDRESS']}"])
    atexit.register(_end, node)
    missed = 0
    while missed < _MISSED:
        ended = node.poll() is not None
        missed = 0 if _answers(head) else missed + 1
        if ended and not missed:
            sys.stderr.write(f"this node of Ray ended by itself ({node.returncode})\n")
            return 1
        time.sleep(_POLL_S)
    return 0


def _start(words: List[str]) -> subprocess.Popen[bytes]:
    """Start Ray's processes for this node, with the container's resources."""
    env = os.environ
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"),
        *words,
        f"--num-cpus={env['TONY_RAY_CPUS']}",
        f"--num-gpus={env['TONY_RAY_GPUS']}",
        f"--memory={env['TONY_RAY_MEMORY']}",
        f"--object-store-memory={env['TONY_RAY_OBJECT_STORE_MEMORY']}",
        # Any free one: those that Ray would take from 10002 on may be held for other tasks.
        *("--min-worker-port=0", "--max-worker-port=0"),
    ]
    own = socket.gethostbyname(env["TONY_RAY_HOST"])
    if not own.startswith("127."):
        command.append(f"--node-ip-address={own}")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def _wait_for(head: Tuple[str, int], node: Any) -> None:
    deadline = time.monotonic() + _START_S
    while not _answers(head):
        if node is not None and node.poll() is not None:
            raise RuntimeError(f"the head of Ray did not start (exit code {node.returncode})")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no head of Ray at {head[0]}:{head[1]} for {_START_S:g} s")
        time.sleep(_POLL_S)


def _wait_for_nodes(ray: Any, count: int, node: Any) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        there = sum(1 for each in ray.nodes() if each["Alive"])
        if there >= count:
            return
        if node.poll() is not None:
            raise RuntimeError(f"the head of Ray ended (exit code {node.returncode})")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{there} of {count} nodes of Ray within {_START_S:g} s")
        time.sleep(_POLL_S)


def _answers(head: Tuple[str, int]) -> bool:
    try:
        with socket.create_connection(head, timeout=5):
            return True
    except OSError:
        return False


def _end(node: Any) -> None:
    """Send SIGTERM, on which Ray ends what it has started; the executor ends what is left."""
    if node.poll() is None:
        node.terminate()
        try:
            node.wait(_END_S)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
