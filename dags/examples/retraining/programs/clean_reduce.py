#!/usr/bin/env python3
"""Reducer: sorts the events of each visit, and drops doubles and robots.

Hadoop streaming sorts the lines by the visit; the reducer relies on nothing else.
"""

import itertools
import sys

ROBOT = 200
"""A visit with more events is a robot's."""


def of(line):
    visit, at, name, kind, seconds = line.rstrip("\n").split("\t")
    return visit, int(at), name, kind, float(seconds)


def count(what, number):
    if number:
        sys.stderr.write(f"reporter:counter:cleaning,{what},{number}\n")


def main():
    for _, events in itertools.groupby(map(of, sys.stdin), key=lambda event: event[0]):
        found = list(events)
        once = sorted({event[2]: event for event in found}.values(), key=lambda event: event[1:])
        count("events that came twice", len(found) - len(once))
        if len(once) > ROBOT:
            count("robots", 1)
            continue
        for visit, at, _, kind, seconds in once:
            print(visit, at, kind, seconds, sep="\t")


if __name__ == "__main__":
    main()
