"""One runtime for all users of a cluster, where an administrator puts it.

``tony.runtime.location`` names it in the site file. Nodes then fetch our code once for
everybody (YARN's visibility PUBLIC) instead of once for each user, and users upload none.
"""

from __future__ import annotations

import errno
from typing import Sequence

from tony_core.bundle import contents
from tony_core.bundle import runtime as runtimes
from tony_core.bundle.runtime import Python
from tony_core.files.location import masked, scheme_of
from tony_core.files.registry import filesystem
from tony_core.plugins import Plugin

SUFFIX = ".tar"


def publish_runtime(
    location: str, pythons: Sequence[Python] = (), plugins: Sequence[Plugin] = ()
) -> int:
    """Write the runtime's archive there, whole, readable for all; returns its size.

    ``pythons``: for which it holds bytecode (ours, unless told). A folder on the way that is
    closed to others makes YARN refuse the file, so this does, before it writes anything.
    """
    if not location.endswith(SUFFIX):
        raise ValueError(f"{masked(location)} must end in {SUFFIX}: nodes unpack it by its name")
    files = filesystem(location)
    described, _ = runtimes.describe(None, tuple(pythons) or (Python.running(),), tuple(plugins))
    folder = location.rpartition("/")[0]
    files.mkdir(folder, 0o755)
    for above in _folders(folder):
        mode = files.stat(above).mode
        if mode is not None and not mode & 0o001:
            raise PermissionError(
                errno.EACCES,
                "is closed to others (it needs the mode o+x), so nodes would refuse what is in it",
                masked(above),
            )
    write = contents.of_runtime(runtimes.load(described)).packed().write
    files.write(location, write, 0o644)
    return files.stat(location).size


def _folders(folder: str) -> Sequence[str]:
    """The folder and all above it, as far as names go."""
    found = []
    bottom = len(scheme_of(folder)) + 3 if scheme_of(folder) else 0
    while "/" in folder[bottom:]:
        found.append(folder)
        folder = folder.rpartition("/")[0]
    return found
