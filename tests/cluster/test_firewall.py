"""The firewall of the tests: what it stops, whom, and that nothing of it is left."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.cluster.firewall import NFT, Firewall

pytestmark = pytest.mark.cluster  # it needs root, and no cluster

CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2)"


def connects(port: int, group: int = -1) -> str:
    """How a process of that group fares; empty: it is connected."""
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(port)],
        capture_output=True,
        text=True,
        group=group if group >= 0 else None,
        timeout=60,
    )
    return done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize(
    ("verdict", "error"), [("drop", "timed out"), ("reject with tcp reset", "refused")]
)
def test_it_stops_only_its_group(verdict: str, error: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        allowed, closed = a.getsockname()[1], b.getsockname()[1]
        with Firewall([f"127.0.0.1:{allowed}"], verdict) as firewall:
            assert connects(allowed, firewall.group) == ""
            assert firewall.stopped == 0
            assert error in connects(closed, firewall.group)
            assert firewall.stopped > 0
            assert connects(closed) == ""
        assert connects(closed, firewall.group) == ""
    done = subprocess.run([NFT, "list", "tables"], capture_output=True, text=True)
    assert firewall._table not in done.stdout
