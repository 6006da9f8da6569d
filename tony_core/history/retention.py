"""Which histories go, by age and by size. Pure.

In a place that users share, a folder holds what its owner likes, and says of itself what he likes.
So a user's files and words decide about his own histories alone. By size each user may keep the
same share of the whole, and has what others leave of theirs; a user with more loses the jobs that
ended longest ago. No user loses one for another's bytes, not even for those that cannot be removed
(of a job that runs).
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional


class KeptHistory(NamedTuple):
    """What retention asks of one job's history."""

    app_id: str
    changed: float  # when it ended, or without an end: when its newest file was written
    size: int = 0  # bytes, as far as its files have no holes
    has_ended: bool = True
    owner: str = ""  # of its folder, where the file system says it
    written: float = 0.0  # its newest file, where it is looked at again before it goes


def fair_share(held: Mapping[str, int], whole: int) -> int:
    """The most bytes that each user may keep, so that all fit into the whole.

    ``held``: the bytes of each. What one leaves of an equal share is divided among the others.
    """
    left, sizes = max(0, whole), sorted(max(0, size) for size in held.values())
    for number, size in enumerate(sizes):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return max(0, whole)


def too_much(jobs: Iterable[KeptHistory], held: int, share: int) -> Iterator[KeptHistory]:
    """Of one user's jobs, the oldest first, those to remove until he holds no more than a share."""
    for job in jobs:
        if held <= share:
            return
        if job.has_ended:
            held -= job.size
            yield job


def choose_expired(
    kept: Iterable[KeptHistory], retention_s: float, retention_bytes: Optional[int], now: float
) -> List[str]:
    """Ids of what to remove: all that is too old, then by size the oldest that have ended."""
    old: List[KeptHistory] = []
    users: Dict[str, List[KeptHistory]] = {}
    for job in kept:
        if now - job.changed > retention_s:
            old.append(job)
        else:
            users.setdefault(job.owner, []).append(job)
    if retention_bytes is not None:
        held = {owner: sum(job.size for job in jobs) for owner, jobs in users.items()}
        share = fair_share(held, retention_bytes)
        for owner, jobs in sorted(users.items()):
            jobs.sort(key=lambda job: (job.changed, job.app_id))
            old += too_much(jobs, held[owner], share)
    return [job.app_id for job in old]
