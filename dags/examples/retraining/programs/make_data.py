"""Makes raw data to try the pipeline on: what a shop's web servers wrote about its visitors.

    python3 make_data.py day1.jsonl
    python3 make_data.py day2.jsonl --seed 2 --wrong 0.5

A line is an event of a visit. As in real data some lines are broken, some are doubled, and some
visitors are robots; cleaning drops them. With --wrong that share of the payments belongs to the
wrong visit: data of the right form from which a model learns nothing.
"""

import argparse
import json
import math
import random

KINDS = ("view", "search", "cart")


def visit(draw, number):
    """The events of one visitor, and whether he paid."""
    hour = draw.randrange(24)
    keen = draw.gauss(0, 1)
    counts = {
        "view": 1 + int(draw.expovariate(0.3)),
        "search": int(draw.expovariate(0.7 if keen > 0 else 0.4)),
        "cart": max(0, round(keen + draw.random())),
    }
    at = 1_800_000_000 + number * 40 + hour * 3600
    events = []
    for kind in KINDS:
        for _ in range(counts[kind]):
            at += draw.randrange(5, 90)
            seconds = draw.expovariate(0.05 - 0.02 * math.tanh(keen))
            events.append({"at": at, "kind": kind, "seconds": round(seconds, 1)})
    return events, 2.5 * keen + draw.gauss(0, 0.7) > 0.3, at


def lines_of(draw, day, visits, wrong):
    """All lines, roughly in the order of time."""
    names = [f"{day}-v{number:06d}" for number in range(visits)]
    paid, found = [], []
    for number, name in enumerate(names):
        events, pays, at = visit(draw, number)
        found += [{"visit": name, **event} for event in events]
        if pays:
            paid.append((name, at + 30))
    for name, at in paid:
        if draw.random() < wrong:
            name = draw.choice(names)
        found.append({"visit": name, "at": at, "kind": "pay", "seconds": 0.0})
    for robot in range(max(1, visits // 200)):
        for number in range(400):
            at = 1_800_000_000 + number
            found.append({"visit": f"{day}-r{robot:06d}", "at": at, "kind": "view", "seconds": 0.1})
    for number, event in enumerate(sorted(found, key=lambda event: event["at"])):
        line = json.dumps({"id": f"e{draw.getrandbits(32):08x}-{number}", **event})
        yield line
        if draw.random() < 0.03:
            yield line  # sent twice
        if draw.random() < 0.01:
            yield line[: draw.randrange(len(line))]  # written by a server that died


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--visits", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1, help="another one is another day")
    parser.add_argument("--wrong", type=float, default=0.0, metavar="SHARE")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    with open(args.file, "w") as file:
        for line in lines_of(draw, f"d{args.seed}", args.visits, args.wrong):
            file.write(line + "\n")


if __name__ == "__main__":
    main()
