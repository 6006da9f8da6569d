"""The end of a process that has said all it had to say.

Python takes its modules and objects apart before a process ends: a tenth of what starting took,
for a client that somebody waits for and, at the end of a gang, for all its executors at once.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End this process; in Python's own way where a thread is at work that must not be cut off."""
    threading = sys.modules.get("threading")
    if threading is not None:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed, or nobody reads it
    os._exit(code)
