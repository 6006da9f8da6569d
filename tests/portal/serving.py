"""A portal's application behind a real server, in a thread of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Iterator

import uvicorn


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """Its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_config=None, http="h11", ws="none", lifespan="off", loop="asyncio",
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield "http://{}:{}".format(*listener.getsockname())
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
