"""Gives back what comes, on any number of connections, on one thread: a master that does naught."""

from __future__ import annotations

import os
import select
import socket
from typing import Dict, Optional


def main() -> None:
    """Serve for ever."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    os.write(1, f"port {listener.getsockname()[1]}\n".encode())
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    open_ones: Dict[int, socket.socket] = {}
    while True:
        for number, _events in poll.poll(None, 1024):
            sock: Optional[socket.socket] = open_ones.get(number)
            if sock is None:
                made, _peer = listener.accept()
                made.setblocking(False)
                open_ones[made.fileno()] = made
                poll.register(made.fileno(), select.EPOLLIN)
                continue
            try:
                data = sock.recv(65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if data:
                sock.send(data)
            else:
                poll.unregister(number)
                del open_ones[number]
                sock.close()


if __name__ == "__main__":
    main()
