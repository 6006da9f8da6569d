"""The tasks of a job add numbers up: an all-reduce through the chief, by the standard library.

Who they are comes from CLUSTER_SPEC, which every job has, whatever its framework. Numbers travel
as JSON, a line each; who listens believes who calls, as the servers of most frameworks do: this
is for networks that the site trusts.
"""

import json
import os
import socket
import time

import tony

JOIN_S = 120
WAIT_S = 600


class Gang:
    """All tasks; outside a job, the only one there is."""

    def __init__(self, rank, count, peers):
        self.rank, self.count = rank, count
        self._peers = [peer.makefile("rw") for peer in peers]

    def sum(self, numbers):
        """Of what each task brings, the same for all of them."""
        if self.rank == 0:
            told = [self._hear(peer) for peer in self._peers]
            total = [sum(each) for each in zip(numbers, *told)]
            for peer in self._peers:
                self._tell(peer, total)
            return total
        for chief in self._peers:
            self._tell(chief, numbers)
            return self._hear(chief)
        return list(numbers)

    def leave(self):
        """Nobody goes before all have come here."""
        self.sum([1])

    def _tell(self, peer, numbers):
        peer.write(json.dumps(numbers) + "\n")
        peer.flush()

    def _hear(self, peer):
        line = peer.readline()
        if not line:
            raise ConnectionError("another task went away")
        return json.loads(line)


def join():
    """As soon as all tasks have met."""
    cluster = json.loads(os.environ.get("CLUSTER_SPEC", "{}"))
    roles = sorted(cluster, key=lambda role: (role != "chief", role))
    tasks = [(role, index) for role in roles for index in range(len(cluster[role]))]
    if len(tasks) < 2:
        return Gang(0, 1, [])
    me = tony.task()
    rank = tasks.index((me.role, me.index))
    host, port = cluster[roles[0]][0].rsplit(":", 1)
    peers = [_called(host, int(port))] if rank else _accepted(int(port), len(tasks) - 1)
    return Gang(rank, len(tasks), peers)


def _accepted(port, count):
    # The port is held for this task; SO_REUSEADDR lets it listen there all the same.
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("", port))
        listening.listen(count)
        listening.settimeout(JOIN_S)
        found = [listening.accept()[0] for _ in range(count)]
    for peer in found:
        peer.settimeout(WAIT_S)
    return found


def _called(host, port):
    deadline = time.monotonic() + JOIN_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=WAIT_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
