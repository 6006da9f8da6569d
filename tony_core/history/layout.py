"""The names of the files in a job's history folder."""

from __future__ import annotations

import re

SUMMARY = "summary.json"
CONFIG = "tony-final.xml"
#: The next master's event numbers begin this far on: readers may have had events from the master
#: before it that never reached history.
ATTEMPT_GAP = 1000
_SEGMENT = re.compile(r"^events-(\d{4,})\.jsonl$")


def segment_name(number: int) -> str:
    """``events-0001.jsonl``."""
    return f"events-{number:04d}.jsonl"


def segment_number(name: str) -> int:
    """The number of a segment's file name; 0 if it is something else."""
    match = _SEGMENT.match(name)
    return int(match.group(1)) if match else 0
