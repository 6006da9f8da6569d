#!/usr/bin/env python3
"""Mapper: makes ``visit TAB at TAB event TAB kind TAB seconds`` of raw lines; drops broken ones.

It runs on the nodes, and needs Python 3.8 only. It counts the lines that it drops, and the job's
page shows the counters.
"""

import json
import string
import sys

KINDS = {"view", "search", "cart", "pay"}
NAMES = set(string.ascii_letters + string.digits + "-_.")


def parsed(line):
    """The fields of an event, or None for a broken line."""
    try:
        event = json.loads(line)
        visit, name, kind = event["visit"], event["id"], str(event["kind"])
        at, seconds = int(event["at"]), float(event["seconds"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    if kind not in KINDS or not 0 <= seconds < 86400:
        return None
    for word in (visit, name):
        if not isinstance(word, str) or not word or not set(word) <= NAMES:
            return None
    return visit, at, name, kind, seconds


def count(what):
    sys.stderr.write(f"reporter:counter:cleaning,{what},1\n")


def main():
    for line in sys.stdin:
        fields = parsed(line)
        if fields is None:
            count("broken lines")
            continue
        print(*fields, sep="\t")


if __name__ == "__main__":
    main()
