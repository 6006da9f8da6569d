"""Quotes a container's command and environment variables for YARN's launch script.

The node writes a launch context's environment as ``export K="V"`` and its command as
``bash -c "CMD"``, both unquoted. ``{{K}}``, ``<LOG_DIR>`` and ``<CPS>`` are replaced first.

A container image is requested by environment variables too (YARN's docker runtime).
NodeManagers without that runtime ignore them; so a submit warns about a job that names an image.
"""

from __future__ import annotations

import re
import shlex
from typing import Dict, List, Mapping, Optional, Sequence

from tony_core.job.spec import Docker

_BEFORE_QUOTES = re.compile(r'([\\"$`])')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_IN_A_VARIABLE = re.compile(r'[\\"$`\n\r\0]|\{\{|<LOG_DIR>|<CPS>')


def quote_word(text: str) -> str:
    """Quote a word of a command."""
    return _BEFORE_QUOTES.sub(r"\\\1", shlex.quote(text))


def container_command(words: Sequence[str], stdout: str, stderr: str) -> str:
    """A container's command, with its output in files of its log folder.

    Where a site's ``yarn.nodemanager.env-whitelist`` lacks PATH, the node's shell has one of its
    own that no process sees, and a Python that was started by its name does not know where it is.
    """
    return (
        f"export PATH; exec {' '.join(quote_word(text) for text in words)}"
        f" 1><LOG_DIR>/{stdout} 2><LOG_DIR>/{stderr}"
    )


def is_plain(value: str) -> bool:
    """Whether a variable's value arrives on the node as it was sent."""
    return _NOT_IN_A_VARIABLE.search(value) is None


def select_plain_variables(env: Mapping[str, str]) -> Dict[str, str]:
    """Select the variables that arrive on the node unchanged."""
    return {name: env[name] for name in env if _NAME.match(name) and is_plain(env[name])}


RUNTIME_PREFIX = "YARN_CONTAINER_RUNTIME_"
_RUNTIME_TYPE = f"{RUNTIME_PREFIX}TYPE"
_DOCKER_IMAGE = f"{RUNTIME_PREFIX}DOCKER_IMAGE"
_DOCKER_MOUNTS = f"{RUNTIME_PREFIX}DOCKER_MOUNTS"


def docker_environment(docker: Optional[Docker]) -> Dict[str, str]:
    """For a container's launch context; nothing where no image is wanted."""
    if docker is None:
        return {}
    wanted = {_RUNTIME_TYPE: "docker", _DOCKER_IMAGE: docker.image}
    if docker.mounts:
        wanted[_DOCKER_MOUNTS] = ",".join(add_mount_mode(mount) for mount in docker.mounts)
    return wanted


def add_mount_mode(mount: str) -> str:
    """``source:target`` may be written without a mode; YARN wants one."""
    return f"{mount}:rw" if mount.count(":") == 1 else mount


def find_docker_problems(who: str, docker: Optional[Docker]) -> List[str]:
    """What YARN could never make of it."""
    found = []
    for name, value in docker_environment(docker).items():
        if not is_plain(value):
            found.append(f"{who}: {value!r} cannot be given to YARN as {name}")
    for mount in docker.mounts if docker else ():
        if mount.count(":") not in (1, 2) or not mount.startswith("/"):
            found.append(f"{who}: the mount {mount!r} is not of the form /SOURCE:/TARGET[:ro|rw]")
    return found


def find_variable_problems(env: Mapping[str, str]) -> List[str]:
    """Variables of the job that YARN's runtimes read and could never make anything of."""
    return [
        f"{name} cannot be given to YARN: {value!r} has a quote, a backslash, $, ` or a line break"
        for name, value in env.items()
        if name.startswith(RUNTIME_PREFIX) and not is_plain(value)
    ]
