"""Which tasks are ranks, and in what order: PyTorch and JAX number them alike."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from tony_core.frameworks.base import Gang, Peer, trains

__all__ = ["rank_of", "ranks", "trains"]


def ranks(gang: Gang) -> Tuple[Peer, ...]:
    """The gang's ranks in their order, the chief first."""
    known: Optional[Tuple[Peer, ...]] = gang.memo.get("ranks")
    if known is None:
        known = tuple(peer for peer in gang.ranked() if trains(gang.role(peer)))
        gang.memo["ranks"] = known
    return known


def rank_of(gang: Gang, peer: Peer) -> Optional[int]:
    """The peer's rank; None for one that does not train."""
    places: Optional[Dict[str, int]] = gang.memo.get("rank_of")
    if places is None:
        places = {item.name: number for number, item in enumerate(ranks(gang))}
        gang.memo["rank_of"] = places
    return places.get(peer.name)
