"""The address by which programs of one machine reach each other, and no other machine does.

Python 3.8.
"""

from __future__ import annotations

import errno
import socket

_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class NoLoopback(OSError):
    """This machine has no loopback address that can be used."""


def loopback_address() -> str:
    """This machine's loopback address: 127.0.0.1, or ::1 where it has only that one."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((host, 0))
                probe.connect(probe.getsockname())  # sends nothing, but needs a route
        except OSError as error:
            if error.errno in _FULL:
                raise
        else:
            return host
    text = "this machine has no loopback address, neither 127.0.0.1 nor ::1: ip link set lo up"
    raise NoLoopback(text)
