"""Why a trigger cannot wait, in the words of both of ours."""

from __future__ import annotations

import socket
from typing import Any, Mapping

from tony_airflow.connection import LOCAL


def elsewhere(site: Mapping[str, Any], host: str, what: str) -> str:
    """That nothing on this machine can see ``what``, a job or jobs of the embedded scheduler of
    another host; empty if it can."""
    here = socket.gethostname()
    if site.get("scheduler", LOCAL) != LOCAL or host in ("", here):
        return ""
    return (
        f"{what} by the embedded scheduler of {host} cannot be seen from this triggerer, which is"
        f" on {here}: use deferrable=False, run a triggerer on {host}, or send jobs to a cluster"
    )


def not_from_here(what: str, why: str) -> str:
    """That this machine is not set up to ask: for good, since no retry would find it otherwise."""
    return f"this triggerer ({socket.gethostname()}) cannot ask for {what}: {why}"


def silent(seconds: float, why: str) -> str:
    """That the cluster has not answered for longer than one waits."""
    return f"the scheduler has not answered for {seconds:.0f} s: {why}"
