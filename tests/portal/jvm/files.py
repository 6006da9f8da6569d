"""``.jhist`` files for tests: by our own writer, and block by block for hostile ones."""

from __future__ import annotations

import json
import zlib
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from tony_core.portal.jvm import avro
from tony_core.portal.jvm.schema import EVENT_SCHEMA, EVENT_TYPES

APP = "application_1541469337545_0031"
NAME = f"{APP}-1542325695566-1542325733637-ann-FAILED.jhist"
RUNNING = f"{APP}-1542325695566-ann.jhist.inprogress"
Event = Tuple[str, Dict[str, Any], int]

INITED: Event = (
    "ApplicationInited",
    {"applicationId": APP, "numTasks": 2, "host": "n0", "containerID": "c_1"},
    1542325700000,
)
STARTED: List[Event] = [
    (
        "TaskStarted",
        {"taskType": role, "taskIndex": 0, "host": host, "containerID": container},
        1542325701000,
    )
    for role, host, container in (("worker", "n1", "c_2"), ("ps", "n2", "c_3"))
]
FAILED: Event = (
    "TaskFinished",
    {
        "taskType": "worker",
        "taskIndex": 0,
        "status": "FAILED",
        "metrics": [
            {"name": "MAX_MEMORY_BYTES", "value": 3 * 1048576.0},
            {"name": "MAX_GPU_UTILIZATION", "value": -1.0},
        ],
        "containerDiagnostic": "Container exited with 1, password=hunter2000",
    },
    1542325731000,
)
ENDED: Event = (
    "ApplicationFinished",
    {"applicationId": APP, "finishedTasks": 1, "failedTasks": 1, "metrics": []},
    1542325733637,
)
EVENTS = [INITED, *STARTED, FAILED, ENDED]


def jhist(events: Iterable[Event] = EVENTS) -> bytes:
    return avro.encode((EVENT_TYPES[kind], kind, fields, at) for kind, fields, at in events)


def number(value: int) -> bytes:
    """A long, as Avro writes it."""
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value & ~0x7F:
        out += bytes([(value & 0x7F) | 0x80])
        value >>= 7
    return out + bytes([value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


SYNC = b"0123456789abcdef"


def container(
    blocks: Iterable[Tuple[int, bytes]],
    schema: Any = EVENT_SCHEMA,
    codec: bytes = b"null",
    metadata: Mapping[bytes, bytes] = {},
) -> bytes:
    """An Avro file of these blocks: how many records each claims to have, and its bytes."""
    held = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec, **metadata}
    head = number(len(held)) + b"".join(text(key) + text(value) for key, value in held.items())
    body = b"".join(number(count) + text(data) + SYNC for count, data in blocks)
    return avro.MAGIC + head + number(0) + SYNC + body


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()
