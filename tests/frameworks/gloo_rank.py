"""A rank that begins as Horovod's gloo does, and adds numbers with the others. Standard library.

Run as a job's program: ``gloo_rank.py FOLDER [TASK]``. It meets the others in Horovod's three
scopes by the rendezvous, connects to every one by the address found there, adds up, and does all of
it again. With TASK that task kills itself in session 0, once it is connected.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Dict, Optional, Tuple

_PATIENCE_S = float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "30"))


class Rendezvous:
    """Horovod's HTTP store: a connection for each request, three tries."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._where = (
            os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"],
            int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]),
        )

    def _request(self, method: str, key: object, body: bytes = b"") -> Tuple[int, bytes]:
        for _ in range(3):
            connection = http.client.HTTPConnection(*self._where, timeout=60)
            try:
                connection.request(method, f"/{self._scope}/{key}", body)
                response = connection.getresponse()
                if response.status in (200, 404):
                    return response.status, response.read()
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(0.5)
        raise SystemExit(f"{method} /{self._scope}/{key} failed")

    def get(self, key: object) -> Optional[bytes]:
        """None: not yet."""
        status, body = self._request("GET", key)
        return body if status == 200 else None

    def put(self, key: object, value: bytes) -> None:
        assert self._request("PUT", key, value)[0] == 200

    def delete(self, key: object) -> None:
        assert self._request("DELETE", key)[0] == 200

    def wait(self, key: object) -> bytes:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            value = self.get(key)
            if value is not None:
                return value
            assert time.monotonic() < deadline, f"no key {key} in {self._scope}"
            time.sleep(0.01)


class Mesh:
    """Connections to all others of a scope."""

    def __init__(self, scope: str, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._others: Dict[int, socket.socket] = {}
        store = Rendezvous(scope)
        self.stale = store.get(rank)  # only this rank puts it
        interface = "127.0.0.1" if os.environ.get("HOROVOD_GLOO_IFACE") == "lo" else ""
        with socket.create_server((interface, 0)) as listener:
            listener.settimeout(_PATIENCE_S)
            store.put(f"rank_{rank}", socket.gethostname().encode())
            host = interface or os.environ["HOROVOD_HOSTNAME"]
            store.put(rank, json.dumps([host, listener.getsockname()[1]]).encode())
            for other in range(rank):
                address, port = json.loads(store.wait(other))
                made = socket.create_connection((address, port), timeout=_PATIENCE_S)
                made.sendall(struct.pack("!I", rank))
                self._others[other] = made
            for _ in range(size - rank - 1):
                made, _ = listener.accept()
                made.settimeout(_PATIENCE_S)
                self._others[struct.unpack("!I", _read(made, 4))[0]] = made
        self.sum(1)  # gloo's barrier: no rank deletes before all are connected
        store.delete(rank)

    def sum(self, number: float) -> float:
        """An all-reduce."""
        for sock in self._others.values():
            sock.sendall(struct.pack("!d", number))
        return number + sum(
            struct.unpack("!d", _read(sock, 8))[0] for sock in self._others.values()
        )

    def close(self) -> None:
        for sock in self._others.values():
            sock.close()


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise SystemExit("a peer is gone")
        data += more
    return data


def _world(victim: bool) -> Dict[str, object]:
    def number(name: str) -> int:
        return int(os.environ[f"HOROVOD_{name}"])

    everybody = Mesh("global_", number("RANK"), number("SIZE"))
    if victim:
        os.kill(os.getpid(), signal.SIGKILL)
    host = Mesh(
        f"local_{os.environ['HOROVOD_HOSTNAME']}", number("LOCAL_RANK"), number("LOCAL_SIZE")
    )
    across = Mesh(f"cross_{number('LOCAL_RANK')}", number("CROSS_RANK"), number("CROSS_SIZE"))
    meshes = (everybody, host, across)
    found = {
        "sums": [mesh.sum(10**mesh.rank) for mesh in meshes],
        "stale": [mesh.stale is not None for mesh in meshes],
        "rank": everybody.rank,
        "session": int(os.environ["SESSION_ID"]),
    }
    everybody.sum(0)  # all have shut down together
    for mesh in meshes:
        mesh.close()
    return found


def main() -> None:
    folder, *victims = sys.argv[1:]
    name = f"{os.environ['JOB_NAME']}:{os.environ['TASK_INDEX']}"
    doomed = name in victims and os.environ["SESSION_ID"] == "0"
    worlds = [_world(doomed), _world(False)]
    Path(folder, f"{os.environ['SESSION_ID']}-{name}.json").write_text(json.dumps(worlds))


if __name__ == "__main__":
    main()
