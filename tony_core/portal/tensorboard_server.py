"""Runs TensorBoard at a socket of the file system, until its standard input ends.

Started as a program by a Python that has TensorBoard, which may lack ``tony_core``: it imports
nothing of ours. Its settings come as a line of JSON on standard input: ``{"log_dir", "socket"}``.
No other user of the machine can reach the socket, whose folder is closed to them, as a port of the
machine could be.

Only TensorBoard's own plugins are loaded. Those of other distributions open files that a job's
files name (the projector does), which may be any."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MOST_MEMORY = 8 << 30  # bytes of address space
NICER = 10


class SocketServer:
    """The server that TensorBoard asks for, at a socket of the file system."""

    def __init__(self, app: Any, path: str) -> None:
        from werkzeug.serving import make_server

        self._server = make_server(f"unix://{path}", 0, app, threaded=True)

    def serve_forever(self) -> None:
        """Answer requests."""
        self._server.serve_forever()

    def get_url(self) -> str:
        """An address that is not used."""
        return "http://localhost/"

    def print_serving_message(self) -> None:
        """Print nothing."""


def main() -> None:
    """Serve one folder."""
    settings = json.loads(sys.stdin.readline())
    limit_itself()
    from tensorboard import default, program

    instance = program.TensorBoard(
        plugins=default.get_static_plugins(),
        server_class=lambda app, flags: SocketServer(app, settings["socket"]),
    )
    instance.configure(
        [
            "tensorboard",
            f"--logdir={settings['log_dir']}",
            "--load_fast=false",
            "--reload_interval=0",  # what has ended grows no more
        ]
    )
    instance.launch()
    sys.stdin.read()
    os._exit(0)


def limit_itself() -> None:
    """Take no more memory than a large log needs, and let the portal go first."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or most > MOST_MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, most))
    os.nice(NICER)


if __name__ == "__main__":
    main()
