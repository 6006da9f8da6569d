"""What it costs the master to find out which user connects to a job's page.

    python benchmarks/page_owner.py [--runs N] [--quick]

Each run is 300 look-ups among this machine's connections, as they are, and beside 5,000 closed
ones, which any user can leave in the kernel's table; then the same by reading that table.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Callable, List

from measuring import PATHS, figure, median, options

sys.path[:0] = PATHS

LOOK_UPS = 300
CLOSED = 5000


def main() -> int:
    """Measure and print."""
    wanted = options(__doc__, runs=5, quick=1)
    from tony_core.protocol.socket_owners import SocketTable

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        caller = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
        table = SocketTable()

        def look_up() -> None:
            assert table.owner_of_peer(there) is not None

        empty = [seconds(look_up, LOOK_UPS) for _ in range(wanted.runs)]
        leave(listener, CLOSED)
        full = [seconds(look_up, LOOK_UPS) for _ in range(wanted.runs)]
        reading = [seconds(read, 10) / 10 * LOOK_UPS for _ in range(wanted.runs)]
        table.close()
        caller.close()
        there.close()
    for name, floor, floor_is in (
        ("page-owner", median(empty), f"before there were {CLOSED} closed connections"),
        ("page-owner-by-table", median(reading), "reading /proc/net/tcp and tcp6 for each"),
    ):
        value = 1e3 * median(full)
        figure(name, value, "ms", floor=1e3 * floor, floor_is=floor_is, runs=wanted.runs)
    return 0


def seconds(work: Callable[[], None], times: int) -> float:
    """How long that takes."""
    began = time.monotonic()
    for _ in range(times):
        work()
    return time.monotonic() - began


def leave(listener: socket.socket, count: int) -> None:
    """Connections that wait in the kernel's table after their end."""
    for _ in range(count):
        with socket.create_connection(listener.getsockname()) as caller:
            there, _ = listener.accept()
            caller.shutdown(socket.SHUT_WR)
            there.close()


def read() -> None:
    """Every row of the table, taken apart."""
    rows: List[List[str]] = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="ascii") as table:
            rows += [line.split() for line in table]


if __name__ == "__main__":
    sys.exit(main())
