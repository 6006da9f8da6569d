"""The child process that makes a session's folder and mends the venv if it must.

What came of it is one JSON object on a pipe: ``venv`` and ``note``, or ``error`` and
``cause``. Nothing at all means that it was ended.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any, Dict, NoReturn

from tony_core.exit_causes import ExitCause
from tony_executor import child, venv, workdir
from tony_executor.site import Site


def make_and_exit(site: Site, name: str, source: str, answer: int) -> NoReturn:
    """In a process of its own; what it says is JSON."""
    said: Dict[str, Any]
    try:
        child.default_signals()
        overlay = os.path.join(site.work, venv.OVERLAY)
        found = venv.find(site.work, overlay, site.path)
        workdir.lay_out(site.work, name, source)
        if found is not None and found.folder == overlay:
            link = os.path.join(site.work, name, venv.NAME)
            if os.path.islink(link):
                os.unlink(link)
                os.symlink(os.path.join("..", venv.OVERLAY), link)
        usable = found is not None and os.path.isdir(os.path.join(found.folder, "bin"))
        said = {
            "venv": found.folder if found is not None and usable else None,
            "note": found.note if found is not None else "",
        }
    except venv.VenvError as error:
        said = {"cause": ExitCause.ENVIRONMENT, "error": str(error)}
    except workdir.LayoutError as error:
        said = {"cause": error.cause, "error": str(error)}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        said = {
            "cause": ExitCause.DISK_FULL if full else ExitCause.LOCALISATION,
            "error": f"the working folder cannot be made: {error}",
        }
    except BaseException as error:
        said = {"cause": ExitCause.LOCALISATION, "error": f"the working folder: {error!r}"}
    try:
        os.write(answer, json.dumps(said).encode())
    finally:
        os._exit(0)
