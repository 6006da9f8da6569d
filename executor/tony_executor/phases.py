"""The phases of an executor's task, its exit codes, and what of it never changes."""

from __future__ import annotations

from typing import ClassVar, Dict, NamedTuple, Set

from tony_core.exit_causes import ExitCause

EXIT_SHUT_DOWN = 0
EXIT_USAGE = 64
EXIT_NO_MASTER = 65  # none was ever reached
EXIT_MASTER_LOST = 66  # none came back in time, or none will
EXIT_REGISTRY = 67  # reached, but never told to be a task
EXIT_INTERNAL = 70  # a fault of ours
EXIT_TERMINATED = 143

LEFTOVER_GRACE_S = 1.0  # for what the program leaves behind, and when there is no master
SAY_AGAIN_S = 5.0
MAX_NOTES = 50


class Phase:
    """Where the task of this session stands."""

    __slots__ = ("value",)

    IDLE: ClassVar[Phase]
    PREPARING: ClassVar[Phase]
    READY: ClassVar[Phase]
    STARTING: ClassVar[Phase]
    RUNNING: ClassVar[Phase]
    ENDED: ClassVar[Phase]

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<{self.value}>"


Phase.IDLE = Phase("idle")
Phase.PREPARING = Phase("preparing")
Phase.READY = Phase("ready")
Phase.STARTING = Phase("starting")
Phase.RUNNING = Phase("running")
Phase.ENDED = Phase("ended")


NEXT: Dict[Phase, Set[Phase]] = {
    Phase.IDLE: {Phase.PREPARING},
    Phase.PREPARING: {Phase.READY, Phase.ENDED},
    Phase.READY: {Phase.STARTING, Phase.ENDED},
    Phase.STARTING: {Phase.RUNNING, Phase.ENDED},
    Phase.RUNNING: {Phase.ENDED},
    Phase.ENDED: {Phase.PREPARING},
}
HAS_CHILD = (Phase.STARTING, Phase.RUNNING)

# What a master that connects is told (messages.Register.phase).
ON_THE_WIRE = {
    Phase.IDLE: "idle",
    Phase.PREPARING: "idle",
    Phase.READY: "ready",
    Phase.STARTING: "running",
    Phase.RUNNING: "running",
    Phase.ENDED: "ended",
}


class Identity(NamedTuple):
    """What of Register never changes."""

    container_id: str
    host: str
    listen_port: int
    pid: int
    runtime: str
    listen_host: str = ""


class Ending(NamedTuple):
    """Why we end the program ourselves."""

    cause: ExitCause
    message: str


class InvalidTransition(Exception):
    """A fault of ours; carries what happened before."""
