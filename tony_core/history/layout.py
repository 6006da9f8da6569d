"""What a job's history folder holds, and under which names."""

from __future__ import annotations

import re

SUMMARY = "summary.json"
CONFIG = "tony-final.xml"
#: The numbers of who goes on with a story begin this far on, since who told it before may have
#: told readers lines that history never saw.
ATTEMPT_GAP = 1000
_SEGMENT = re.compile(r"^events-(\d{4,})\.jsonl$")


def segment_name(number: int) -> str:
    """``events-0001.jsonl``."""
    return f"events-{number:04d}.jsonl"


def segment_number(name: str) -> int:
    """The number of a segment's file name; 0 if it is something else."""
    match = _SEGMENT.match(name)
    return int(match.group(1)) if match else 0
