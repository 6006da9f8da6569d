"""The verb ``yarn-find-master``: where the next master is, for an executor that lost its own.

On YARN nobody but the ResourceManager starts a master. The next one writes its address into the
application's folder on the staging file system; this looks there for a while, and copies what it
finds to where the executor reads it (``TONY_MASTER_FILE``). The exit codes are those that
executors know of their successor command: somebody else starts it (:data:`NOT_YET`), or there is
no next master (:data:`OVER`), when the folder is gone: a master removes it when the job has ended.

Many executors look at once: each pauses for a time of its own between two looks.

Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.node.start import MASTER_FILE, read_container_secrets

if TYPE_CHECKING:
    from tony_core.files.port import FileSystem

FOUND = 0
USAGE = 2
NOT_YET = 3
OVER = 4
SEARCH_S = 20.0  # how long one run looks
PAUSE_S = 2.0  # between two looks, and as much again at random


def main(argv: Sequence[str]) -> int:
    """See the module."""
    if argv:
        sys.stderr.write("usage: yarn-find-master\n")
        return USAGE
    try:
        told = job_credentials.read_executor_credentials(read_container_secrets(os.environ))
    except (OSError, ValueError) as error:
        sys.stderr.write("yarn-find-master: %s\n" % error)
        return USAGE
    files = open_files(told.site, told.user)
    target = os.environ.get("TONY_MASTER_FILE") or MASTER_FILE
    end = time.monotonic() + SEARCH_S
    code = copy_master_address(files, told.state_dir, target)
    while code == NOT_YET and time.monotonic() < end:
        time.sleep(PAUSE_S * (1 + random.random()))
        code = copy_master_address(files, told.state_dir, target)
    # What was found may be the master that was lost; and it was not us who started another.
    return NOT_YET if code == FOUND else code


def open_files(site: Mapping[str, str], user: str) -> FileSystem:
    """The staging file system, as the client found it."""
    from tony_core.files.hdfs import WebHdfsFileSystem
    from tony_core.hadoop.site.configuration import SiteConfiguration

    return WebHdfsFileSystem(SiteConfiguration.of(site), user)


def copy_master_address(files: FileSystem, state_dir: str, target: str) -> int:
    """One look; the exit code it comes to."""
    try:
        said = files.get(state_dir.rstrip("/") + "/master.json", 1 << 16)
    except FileNotFoundError:
        try:
            return NOT_YET if files.exists(state_dir) else OVER
        except OSError as error:
            return _report_error(error)
    except (OSError, ValueError) as error:
        return _report_error(error)
    if said == _read_file(target):
        return NOT_YET
    scratch = "%s.%d" % (target, os.getpid())
    with open(scratch, "wb") as file:
        file.write(said)
    os.replace(scratch, target)
    return FOUND


def _read_file(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _report_error(error: Exception) -> int:
    """The file system may be back later."""
    sys.stderr.write("yarn-find-master: %s\n" % error)
    return NOT_YET


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
