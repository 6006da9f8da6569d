"""The verb ``yarn-find-master``: finds the next master for an executor that lost its own.

On YARN only the ResourceManager starts a master. The next one writes its address into the
application's folder on the staging file system. This verb polls that folder for a while, and
copies the address to where the executor reads it (``TONY_MASTER_FILE``). The exit codes are those
of every successor command: the ResourceManager starts the next master (:data:`NOT_YET`), or there
is none (:data:`OVER`), because a master removes the folder when the job has ended.

Many executors poll at once, so each pauses for a random time between two looks.

Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from tony_core.hadoop.credentials import LOCATION, Credentials
from tony_core.hadoop.identity import container_identity
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.node.start import MASTER_FILE, TOKEN_FILE_VARIABLE

if TYPE_CHECKING:
    from tony_core.files.port import FileSystem

FOUND = 0
USAGE = 2
NOT_YET = 3
OVER = 4
SEARCH_S = 20.0  # how long one run polls
PAUSE_S = 2.0  # between two polls, and up to as much again at random


def main(argv: Sequence[str]) -> int:
    """Poll for the next master; returns an exit code."""
    if argv:
        sys.stderr.write("usage: yarn-find-master\n")
        return USAGE
    try:
        held = read_credentials(os.environ)
        credentials = job_credentials.read_executor_credentials(held.secrets)
        files = open_files(credentials.site, credentials.user, held)
    except (OSError, ValueError) as error:
        sys.stderr.write("yarn-find-master: %s\n" % error)
        return USAGE
    target = os.environ.get("TONY_MASTER_FILE") or MASTER_FILE
    end = time.monotonic() + SEARCH_S
    code = copy_master_address(files, credentials.state_dir, target)
    while code == NOT_YET and time.monotonic() < end:
        time.sleep(PAUSE_S * (1 + random.random()))
        code = copy_master_address(files, credentials.state_dir, target)
    # The address may be that of the lost master, and this verb starts none itself.
    return NOT_YET if code == FOUND else code


def read_credentials(env: Mapping[str, str]) -> Credentials:
    """The container's secrets, with the newest tokens: a master may have sent fresh ones."""
    held = Credentials.of_container(env)
    path = env.get(TOKEN_FILE_VARIABLE)
    if not path:
        return held
    return held.with_renewed(Credentials.of_container({LOCATION: path}))


def open_files(site: Mapping[str, str], user: str, held: Credentials) -> FileSystem:
    """The staging file system, by the properties that the client sent."""
    from tony_core.files.hdfs import WebHdfsFileSystem
    from tony_core.hadoop.site.configuration import SiteConfiguration

    conf = SiteConfiguration.of(site)
    return WebHdfsFileSystem(conf, container_identity(conf, user, held))


def copy_master_address(files: FileSystem, state_dir: str, target: str) -> int:
    """Copy the master's address if it has changed; returns an exit code."""
    try:
        content = files.get(state_dir.rstrip("/") + "/master.json", 1 << 16)
    except FileNotFoundError:
        try:
            return NOT_YET if files.exists(state_dir) else OVER
        except OSError as error:
            return _report_error(error)
    except (OSError, ValueError) as error:
        return _report_error(error)
    if content == _read_file(target):
        return NOT_YET
    scratch = "%s.%d" % (target, os.getpid())
    with open(scratch, "wb") as file:
        file.write(content)
    os.replace(scratch, target)
    return FOUND


def _read_file(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _report_error(error: Exception) -> int:
    """Log an error of the file system, which may recover."""
    sys.stderr.write("yarn-find-master: %s\n" % error)
    return NOT_YET


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
