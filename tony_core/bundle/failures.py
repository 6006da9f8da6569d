"""What a cluster's file system refused, in one line that says what to do."""

from __future__ import annotations

import contextlib
import errno
from typing import Iterator
from urllib.parse import urlsplit

from tony_core.bundle.remote.store import Damaged
from tony_core.bundle.tree import Changed
from tony_core.files.location import masked, remedy
from tony_core.files.port import UnsupportedLocation
from tony_core.files.webhdfs.answers import parse_denial

_STAGING_DIR = "tony.yarn.staging-dir"


class StagingError(Exception):
    """The staging place could not take the job's files; the message says what to do."""


@contextlib.contextmanager
def staging_error(root: str) -> Iterator[None]:
    """Turn what a remote root refuses into :class:`StagingError`.

    Not what is the user's own file: staging asks only the root inside of this.
    """
    try:
        yield
    except Changed:
        raise  # the user's doing
    except Damaged as error:
        raise StagingError(f"a staged file is damaged: {error}; {remedy(root)}") from error
    except UnsupportedLocation as error:
        raise StagingError(error.strerror or str(error)) from error
    except OSError as error:
        why = " ".join((error.strerror or str(error)).split())  # a server may use many lines
        where = f" [{error.filename}]" if error.filename else ""
        what = _advice(error, root)
        raise StagingError(
            f"the job's files cannot be staged below {masked(root)}: {why}{where}"
            + (f"; {what}" if what else "")
        ) from error


def _advice(error: OSError, root: str) -> str:
    """What to do about it, beyond what the file system says itself."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "tony gc removes what ended jobs have left there"
    if isinstance(error, PermissionError):
        return _permission(str(error.strerror), masked(root))
    return ""


def _permission(said: str, root: str) -> str:
    """Who can do something: the folder's owner, the administrator, or the user elsewhere."""
    denied = parse_denial(said)
    if denied is None:
        return f"{_STAGING_DIR} names another place"
    if denied.owner == denied.user:
        return f"{denied.path} is your own ({denied.mode}): change its mode"
    home = root.rpartition("/")[0]
    path = urlsplit(home).path
    if denied.access == "WRITE" and path.startswith(f"{denied.path.rstrip('/')}/"):
        # Refused above it: so it is not there.
        return (
            f"the administrator can make {home} and give it to you, or {_STAGING_DIR} names a"
            " folder of your own"
        )
    return (
        f"{denied.path} is {denied.owner}'s ({denied.mode}): name a folder of your own by"
        f" {_STAGING_DIR}"
    )
