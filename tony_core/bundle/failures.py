"""What a cluster's file system refused, in one line that says what to do."""

from __future__ import annotations

import contextlib
import errno
from typing import Iterator

from tony_core.bundle.remote import Damaged
from tony_core.bundle.tree import Changed
from tony_core.files.location import masked
from tony_core.files.port import UnsupportedLocation


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
        words = f"{error.filename} {error.strerror}"
        raise StagingError(f"a staged file is damaged: {words}") from error
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
        home = masked(root).rpartition("/")[0]
        return f"the administrator can make {home} and give it to you"
    return ""
