"""A lock between processes, on a file, with a deadline.

``flock``: the kernel frees it when its holder dies, however it dies. The file itself stays.
Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Iterator

_POLL_S = 0.01


@contextlib.contextmanager
def locked(path: str, exclusive: bool, timeout_s: float) -> Iterator[None]:
    """Hold the lock; ``TimeoutError`` when others held it all that time."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, how)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} was locked for {timeout_s:.0f} s") from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)
