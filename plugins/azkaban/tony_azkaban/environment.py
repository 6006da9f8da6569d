"""Gives the program that submits the server's own environment, without the job's variables.

Azkaban starts a job type's command with the server's environment and, over it, the job's ``env.X``
(and ``ENV.X``). Those are for the tasks. In the program that submits they would choose the programs
and libraries that it loads (``PATH``, ``LD_PRELOAD``, ``OPENSSL_CONF``), and the user as whom it
calls a cluster. So before it imports anything else, it restores the environment with which the
server was started. Where it cannot read that, since the server starts jobs as other users
(``execute.as.user``), it keeps only a few variables. Of a login to a cluster it keeps the server's
own, too: a ticket cache or a token file of a job's choice could be another user's. What the server
hands over for this job is among the job's properties (:mod:`tony_azkaban.login`).

The dynamic loader reads its variables before any Python runs. When a job has set one, this program
starts itself again without it; it cannot undo what a library of the job's did until then
(docs/azkaban.md).
"""

from __future__ import annotations

import os
import pwd
import sys
from typing import Dict, Mapping, Optional

#: The server's variables for this job.
OF_JOB = ("JOB_PROP_FILE", "JOB_OUTPUT_PROP_FILE", "JOB_NAME")
#: The variables to keep where the server's own environment is unknown; they choose no file to load.
PLAIN = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
LOADER = ("LD_", "GLIBC_", "MALLOC_")


def restore(server: Optional[Mapping[str, str]] = None) -> None:
    """Give this process the server's environment: ``server``, else the parent process's."""
    own = server if server is not None else _of_parent()
    wanted = dict(own) if own is not None else _plain()
    wanted.update({name: os.environ[name] for name in OF_JOB if name in os.environ})
    loaded = _for_loader(os.environ) != _for_loader(wanted)
    os.environ.clear()
    os.environ.update(wanted)
    if loaded:
        os.execve(sys.executable, sys.orig_argv, os.environ)


def _for_loader(environment: Mapping[str, str]) -> Dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(LOADER)}


def _of_parent() -> Optional[Dict[str, str]]:
    """The environment with which the server was started; None if another user owns it."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return None
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition(b"=")
        if name and equals:
            found[os.fsdecode(name)] = os.fsdecode(text)
    return found or None


def _plain() -> Dict[str, str]:
    found = {name: os.environ[name] for name in PLAIN if name in os.environ}
    found["PATH"] = os.defpath
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return found
    return {**found, "HOME": entry.pw_dir, "USER": entry.pw_name}
