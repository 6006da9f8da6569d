"""Log files on the job's page, where they stand in a folder of this machine."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Dict, Mapping, Optional

from tony_core.files.location import is_remote, local_path
from tony_core.master.web.request import whole_number
from tony_core.master.web.server import Response

PIECE = 1 << 20
TAIL = 128 * 1024  # what a person gets who asks for no offset
END = 4096  # bytes of each log where those of many tasks are shown
END_LINES = 10


STREAMS = ("stdout", "stderr")
EMPTY = b"nothing was written yet\n"


def read_log(
    log_url: str, name: str, offset: Optional[str], headers: Mapping[str, str]
) -> Response:
    """A piece of one file of a log folder; ``X-Next-Offset`` says where the next begins.

    Without a name the ends of stdout and stderr, one below the other. A person, who asks for no
    offset, reads that a stream has nothing yet; for a program that is 404 until there is a file.

    A negative offset counts from the end. Raises :class:`BadRequest`.
    """
    start = None if offset is None else whole_number(offset, "offset", least=-sys.maxsize)
    if not log_url or is_remote(log_url):
        return Response(404, b"there is no such log on this machine\n", headers=headers)
    if not name:
        return _read_both(log_url, headers)
    if "/" in name or name.startswith(".") or "\0" in name:
        return Response(404, b"there is no such log\n", headers=headers)
    path = Path(local_path(log_url), name)
    try:
        # Never through a link: the program writes into this folder.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if name in STREAMS and start is None:
            return Response(200, EMPTY, headers={**headers, "X-Next-Offset": "0"})
        return Response(404, b"there is no such log (yet)\n", headers=headers)
    except (OSError, ValueError):  # or a name that cannot be one of a file
        return Response(404, b"there is no such log (yet)\n", headers=headers)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        return Response(404, b"not a file\n", headers=headers)
    with os.fdopen(fd, "rb") as stream:
        if start is None:
            start = -TAIL
        start = max(0, found.st_size + start) if start < 0 else min(start, found.st_size)
        stream.seek(start)
        data = stream.read(PIECE)
    return Response(200, data, headers={**headers, "X-Next-Offset": str(start + len(data))})


def read_ends(log_url: str) -> Dict[str, str]:
    """The last lines of a container's logs by stream; without those that cannot be read here."""
    found = {}
    for name in STREAMS:
        answer = read_log(log_url, name, str(-END), {})
        if answer.status == 200:
            lines = answer.body.decode("utf-8", "replace").splitlines()
            found[name] = "\n".join(lines[-END_LINES:])
    return found


def _read_both(log_url: str, headers: Mapping[str, str]) -> Response:
    found = {name: read_log(log_url, name, None, headers) for name in STREAMS}
    parts = [
        b"===== %s\n%s\n" % (name.encode(), answer.body)
        for name, answer in found.items()
        if answer.status == 200 and answer.body not in (b"", EMPTY)
    ]
    unreadable = [answer for answer in found.values() if answer.status != 200]
    if unreadable and not parts:
        return unreadable[0]
    return Response(200, b"".join(parts) or EMPTY, headers=headers)
