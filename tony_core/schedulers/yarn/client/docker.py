"""The variables by which YARN is asked for a container image (its docker runtime).

They stand in the launch context's environment; NodeManagers without that runtime ignore them,
which is why a job that wants an image says so in its own words too (a warning at submit).
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional

from tony_core.job.spec import Docker
from tony_core.schedulers.yarn.quoting import is_plain

PREFIX = "YARN_CONTAINER_RUNTIME_"
TYPE = f"{PREFIX}TYPE"
IMAGE = f"{PREFIX}DOCKER_IMAGE"
MOUNTS = f"{PREFIX}DOCKER_MOUNTS"


def environment(docker: Optional[Docker]) -> Dict[str, str]:
    """For a container's launch context; nothing where no image is wanted."""
    if docker is None:
        return {}
    wanted = {TYPE: "docker", IMAGE: docker.image}
    if docker.mounts:
        wanted[MOUNTS] = ",".join(with_mode(mount) for mount in docker.mounts)
    return wanted


def with_mode(mount: str) -> str:
    """``source:target`` may be written without a mode; YARN wants one."""
    return f"{mount}:rw" if mount.count(":") == 1 else mount


def problems(who: str, docker: Optional[Docker]) -> List[str]:
    """What YARN could never make of it."""
    found = []
    for name, value in environment(docker).items():
        if not is_plain(value):
            found.append(f"{who}: {value!r} cannot be given to YARN as {name}")
    for mount in docker.mounts if docker else ():
        if mount.count(":") not in (1, 2) or not mount.startswith("/"):
            found.append(f"{who}: the mount {mount!r} is not of the form /SOURCE:/TARGET[:ro|rw]")
    return found


def variable_problems(env: Mapping[str, str]) -> List[str]:
    """Variables of the job that YARN's runtimes read and could never make anything of."""
    return [
        f"{name} cannot be given to YARN: {value!r} has a quote, a backslash, $, ` or a line break"
        for name, value in env.items()
        if name.startswith(PREFIX) and not is_plain(value)
    ]
