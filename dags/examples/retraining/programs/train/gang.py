"""An all-reduce for the tasks of a job, through the chief, by the standard library.

The tasks' addresses come from CLUSTER_SPEC, which every job has, whatever its framework. Each
message is a line of JSON; the chief believes every caller, as the servers of most frameworks do:
use this in networks that the site trusts.
"""

import json
import os
import socket
import time

import tony

JOIN_S = 120
WAIT_S = 600


class Gang:
    """All tasks of the job; outside of a job, this process only."""

    def __init__(self, rank, count, peers):
        self.rank, self.count = rank, count
        self._peers = [peer.makefile("rw") for peer in peers]

    def sum(self, numbers):
        """The sum of all tasks' numbers, for each of them."""
        if self.rank == 0:
            received = [self._receive(peer) for peer in self._peers]
            total = [sum(each) for each in zip(numbers, *received)]
            for peer in self._peers:
                self._send(peer, total)
            return total
        for chief in self._peers:
            self._send(chief, numbers)
            return self._receive(chief)
        return list(numbers)

    def leave(self):
        """Wait for all tasks to reach this point."""
        self.sum([1])

    def _send(self, peer, numbers):
        peer.write(json.dumps(numbers) + "\n")
        peer.flush()

    def _receive(self, peer):
        line = peer.readline()
        if not line:
            raise ConnectionError("another task has ended")
        return json.loads(line)


def join():
    """Connect the tasks of this job."""
    cluster = json.loads(os.environ.get("CLUSTER_SPEC", "{}"))
    roles = sorted(cluster, key=lambda role: (role != "chief", role))
    tasks = [(role, index) for role in roles for index in range(len(cluster[role]))]
    if len(tasks) < 2:
        return Gang(0, 1, [])
    me = tony.task()
    rank = tasks.index((me.role, me.index))
    host, port = cluster[roles[0]][0].rsplit(":", 1)
    peers = [_connect(host, int(port))] if rank else _accept(int(port), len(tasks) - 1)
    return Gang(rank, len(tasks), peers)


def _accept(port, count):
    # TonY reserves the port for this task; SO_REUSEADDR lets the task listen there.
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("", port))
        listening.listen(count)
        listening.settimeout(JOIN_S)
        found = [listening.accept()[0] for _ in range(count)]
    for peer in found:
        peer.settimeout(WAIT_S)
    return found


def _connect(host, port):
    deadline = time.monotonic() + JOIN_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=WAIT_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
