"""Fits a line to points, in two or more processes that add up their gradients.

Every worker has its own points; after each step the first worker adds the gradients up and sends
the sum to all. It needs Python only; a framework would do this for you.
"""

import argparse
import json
import os
import random
import socket
import time

import tony

RATE = 0.3


def meet(rank, addresses):
    """Connections between the first worker and the others."""
    host, port = addresses[0].rsplit(":", 1)
    if rank == 0:
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("", int(port)))
            listening.listen()
            listening.settimeout(120)
            return [listening.accept()[0].makefile("rw") for _ in addresses[1:]]
    while True:
        try:
            return [socket.create_connection((host, int(port)), timeout=120).makefile("rw")]
        except ConnectionRefusedError:
            time.sleep(0.1)


def summed(rank, peers, numbers):
    """The sum of all workers' numbers, for each of them."""
    if rank:
        print(json.dumps(numbers), file=peers[0], flush=True)
        return json.loads(peers[0].readline())
    for peer in peers:
        theirs = json.loads(peer.readline())
        numbers = [mine + other for mine, other in zip(numbers, theirs)]  # noqa: B905
    for peer in peers:
        print(json.dumps(numbers), file=peer, flush=True)
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-sleep", type=float, default=0.0, help="to have time to look")
    args = parser.parse_args()

    rank = int(os.environ["TASK_INDEX"])
    addresses = json.loads(os.environ["CLUSTER_SPEC"])["worker"]
    peers = meet(rank, addresses)
    draw = random.Random(rank)
    points = [(x, 3 * x + 1 + draw.gauss(0, 0.1)) for x in (draw.random() for _ in range(200))]

    slope = offset = 0.0
    for step in range(1, args.steps + 1):
        errors = [(slope * x + offset - y, x) for x, y in points]
        mine = [sum(e * x for e, x in errors), sum(e for e, _ in errors)]
        mine += [sum(e * e for e, _ in errors), len(points)]
        by_slope, by_offset, squares, count = summed(rank, peers, mine)
        slope -= 2 * RATE * by_slope / count
        offset -= 2 * RATE * by_offset / count
        loss = squares / count
        tony.report(progress=step / args.steps, step=step, metrics={"loss": loss})
        if rank == 0:
            print(f"step {step}: y = {slope:.2f} x + {offset:.2f}, loss {loss:.4f}", flush=True)
        time.sleep(args.step_sleep)


if __name__ == "__main__":
    main()
