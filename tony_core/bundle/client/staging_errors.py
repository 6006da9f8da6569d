"""Errors of the staging root, each in one line that says what to do."""

from __future__ import annotations

import contextlib
import errno
from typing import Iterator
from urllib.parse import urlsplit

from tony_core.bundle.client.tree import Changed
from tony_core.bundle.remote.store import Damaged
from tony_core.files.location import masked, remedy
from tony_core.files.port import UnsupportedLocation
from tony_core.files.webhdfs.responses import parse_access_denial

_STAGING_DIR = "tony.yarn.staging-dir"


class StagingError(Exception):
    """The job's files cannot be staged; the message says what to do."""


@contextlib.contextmanager
def staging_error(root: str) -> Iterator[None]:
    """Turn the errors of a remote root into :class:`StagingError`; those of sources pass."""
    try:
        yield
    except Changed:
        raise  # a source, not the root
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
    """Advice beyond the file system's own message."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "tony gc removes what ended jobs have left there"
    if isinstance(error, PermissionError):
        return _permission_advice(str(error.strerror), masked(root))
    return ""


def _permission_advice(text: str, root: str) -> str:
    """Who can do something: the folder's owner, the administrator, or the user elsewhere."""
    denied = parse_access_denial(text)
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
