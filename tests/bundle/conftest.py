"""A real web server with real files."""

from __future__ import annotations

import functools
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Iterator, List

import pytest


class Site:
    """What it serves, where, and what was asked of it."""

    def __init__(self, folder: Path, address: str, asked: List[str]) -> None:
        self.folder, self.address, self.asked = folder, address, asked

    def put(self, name: str, data: bytes, mtime: int = 1000) -> str:
        """Serve a file; returns its URL."""
        (self.folder / name).write_bytes(data)
        os.utime(self.folder / name, (mtime, mtime))
        return f"http://{self.address}/{name}"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "www"
    folder.mkdir()
    asked: List[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, *_: object) -> None:
            asked.append(self.requestline)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Site(folder, f"127.0.0.1:{server.server_port}", asked)
    server.shutdown()
    thread.join()
    server.server_close()
