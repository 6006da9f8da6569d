"""Training whose data set and checkpoints are on HDFS; needs nothing but Python.

A small network, trained by stochastic gradient descent in plain Python. With --die-at the first
session kills itself there, without a warning; the next one goes on from the newest checkpoint.
"""

import argparse
import csv
import json
import math
import operator
import os
import random
import signal
import sys
import tempfile

import tony

HIDDEN = 8


def read(folder):
    """Features and target of every line of every file."""
    rows = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".csv"):
            with open(os.path.join(folder, name)) as file:
                rows += [[float(word) for word in row] for row in list(csv.reader(file))[1:]]
    return [(row[:-1], row[-1]) for row in rows]


def dot(one, other):
    return sum(map(operator.mul, one, other))


def moved(row, slopes, scale):
    return list(map(lambda weight, slope: weight - scale * slope, row, slopes))


def first_weights(inputs):
    """The same in every session."""
    draw = random.Random(0)
    rows = [[draw.gauss(0, inputs**-0.5) for _ in range(inputs + 1)] for _ in range(HIDDEN)]
    return {"in": rows, "out": [draw.gauss(0, HIDDEN**-0.5) for _ in range(HIDDEN + 1)]}


def train(weights, batch, rate):
    """One step; the loss before it."""
    rows, out = weights["in"], weights["out"]
    row_slopes, out_slopes = [[0.0] * len(row) for row in rows], [0.0] * len(out)
    total = 0.0
    for features, y in batch:
        x = [*features, 1.0]
        hidden = [*(math.tanh(dot(row, x)) for row in rows), 1.0]
        error = dot(out, hidden) - y
        total += error * error
        out_slopes = moved(out_slopes, hidden, -2 * error)
        for unit in range(HIDDEN):
            back = 2 * error * out[unit] * (1 - hidden[unit] ** 2)
            row_slopes[unit] = moved(row_slopes[unit], x, -back)
    scale = rate / len(batch)
    weights["out"] = moved(out, out_slopes, scale)
    weights["in"] = [moved(rows[unit], row_slopes[unit], scale) for unit in range(HIDDEN)]
    return total / len(batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="a folder of CSV files, on HDFS or here")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--die-at", type=int, metavar="STEP", help="kill -9 in the first session")
    args = parser.parse_args()

    me = tony.task()
    data = read(tony.dataset(args.data))
    job = os.environ.get("JOB_ID", "by-hand")
    folder = f"{me.checkpoint_dir or 'checkpoints'}/{job}"
    saved = tony.checkpoints(folder, keep=2, background=True)
    state = {"weights": first_weights(len(data[0][0])), "losses": []}
    newest = saved.latest()
    start = newest[0] if newest else 0
    if newest:
        with open(newest[1]) as file:
            state = json.load(file)
        print(f"session {me.session}: resumed at step {start}", flush=True)

    for step in range(start, args.steps):
        if step == args.die_at and me.session == 0:
            saved.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        batch = random.Random(step).sample(data, args.batch)
        loss = train(state["weights"], batch, rate=0.05)
        state["losses"].append(loss)
        tony.report(progress=(step + 1) / args.steps, step=step + 1, metrics={"loss": loss})
        if (step + 1) % args.checkpoint_every == 0 or step + 1 == args.steps:
            saved.save(step + 1, json.dumps(state).encode())
            print(f"step {step + 1:4d}  loss {loss:.5f}", flush=True)
    saved.wait()

    losses = state["losses"]
    first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
    result = {
        "first_loss": first,
        "last_loss": last,
        "steps": len(losses),
        "resumed_at": start,
        "sessions": me.session + 1,
    }
    with tempfile.TemporaryDirectory() as here:
        path = os.path.join(here, "result.json")
        with open(path, "w") as file:
            json.dump(result, file, indent=1)
        print(f"loss {first:.5f} -> {last:.5f};", tony.upload(path, f"{folder}/result.json"))
    if not last < first / 2:
        sys.exit("the loss did not fall by half")


if __name__ == "__main__":
    main()
