"""Jobs and gangs for the framework tests, made without a master."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from tony_core.frameworks.base import Framework, Gang, Peer
from tony_core.job.spec import Job, Resources, Role, Tracking

_USUAL = {"ps": Tracking.UNTRACKED, "tensorboard": Tracking.SIDECAR}


def job(framework: str, counts: Mapping[str, int], **fields: Any) -> Job:
    """A job of these roles, tracked as the defaults of the job file say."""
    gpus = fields.pop("gpus", 0)
    depends: Mapping[str, Tuple[str, ...]] = fields.pop("depends", {})
    tracking: Mapping[str, Tracking] = fields.pop("tracking", {})
    roles = tuple(
        Role(
            name,
            count,
            Resources(gpus=gpus),
            "true",
            tracking=tracking.get(name, _USUAL.get(name, Tracking.TRACKED)),
            depends_on=depends.get(name, ()),
        )
        for name, count in counts.items()
    )
    return Job(name="test", roles=roles, framework=framework, **fields)


def gang(made: Job, session: int = 0, **fields: Any) -> Gang:
    """Every task of the job with an address: 10.0.0.N, port 20000 + N."""
    peers = []
    for role in made.roles:
        for index in range(role.instances):
            number = len(peers)
            peers.append(
                Peer(role.name, index, f"n{number}", f"10.0.0.{number}", {"main": 20000 + number})
            )
    return Gang(made, session, tuple(peers), **fields)


def resolve(value: str, shared: Mapping[str, str]) -> str:
    """A value as the program sees it: what the executor does with shared references."""
    for name, text in shared.items():
        value = value.replace(f"\x00{name}\x00", text)
    assert "\x00" not in value
    return value


def seen(framework: Framework, made: Gang) -> Dict[str, Dict[str, str]]:
    """Task name -> the environment its program finds."""
    shared = framework.shared(made)
    return {
        peer.name: {
            key: resolve(value, shared) for key, value in framework.environment(made, peer).items()
        }
        for peer in made.peers
    }
