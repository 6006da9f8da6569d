"""The two ends of a channel, from one job's secret."""

from __future__ import annotations

from typing import Any

from tony_core.protocol.channel import Channel, container_key

CONTAINER = "container_1"


def master_end(secret: bytes, dialler: bool = False, **options: Any) -> Channel:
    """The master's end, which usually listens."""
    return Channel(secret, dialler, **options)


def executor_end(
    secret: bytes, dialler: bool = True, container_id: str = CONTAINER, **options: Any
) -> Channel:
    """An executor's end, which usually dials."""
    key = container_key(secret, container_id) if secret else b""
    return Channel(key, dialler, container_id=container_id, **options)
