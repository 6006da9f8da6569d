"""How much of one job's history a reader takes.

In a place that users share, a history holds what its owner likes, and that costs its
readers. So bytes are counted before they are read, values before they are parsed, and tasks and
lines before they are looked at. What is left out is named as a problem of that job.
"""

from __future__ import annotations

from typing import NamedTuple

LARGEST = 128 << 20  # bytes of a file of history, and of all files with points


class Limits(NamedTuple):
    """What is read at most."""

    tasks: int
    lines: int  # of the story; of what has changed since the summary
    values: int  # of JSON: of the summary, of the story
    size: int  # bytes: of the summary, of the story
    metrics: int  # bytes


#: By a program that ends afterwards: as many tasks as a job may have.
READING = Limits(100_000, 2_000_000, 20_000_000, LARGEST, LARGEST)
#: By a portal that answers others meanwhile.
PAGES = Limits(20_000, 200_000, 3_000_000, 32 << 20, 64 << 20)
#: By the thread that looks at all jobs: what is larger it leaves to another process.
GLANCE = Limits(5_000, 20_000, 400_000, 4 << 20, 4 << 20)


def count_values(data: bytes) -> int:
    """At least how many values of JSON the data can hold; parsed, each takes some 100 bytes."""
    return data.count(b",") + data.count(b"{") + data.count(b"[")


def megabytes(size: int) -> str:
    """``32 MB``."""
    return f"{size >> 20} MB"
