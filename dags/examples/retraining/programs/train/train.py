"""Trains on the features, distributed over the tasks of the job, in plain Python.

    train.py --features hdfs:///.../features --model hdfs:///.../model

Every task reads its share of the training files and computes its gradient; the chief adds the
gradients up and sends the sum to all. So every task makes the same step, and any number of workers
gives the same model. The chief keeps checkpoints on HDFS, evaluates the model on rows that were not
trained on, reports the metrics, and saves model and metrics at --model: the whole folder at once,
or nothing.

It is an example for a training with a real framework, and needs only Python 3.8 on the nodes.
"""

import argparse
import csv
import glob
import json
import math
import os
import tempfile

import gang

import tony


def read_rows(paths):
    """Features and target of each row, and the features' names."""
    rows, names = [], []
    for path in paths:
        with open(path) as file:
            lines = csv.reader(file)
            head = next(lines, None)
            if head:
                names = head[:-1]
                rows += [[float(word or 0) for word in line] for line in lines]
    return [(row[:-1], row[-1]) for row in rows], names


def parts(folder, name):
    return sorted(glob.glob(os.path.join(folder, name, "part-*")))


def read_scale(folder, names):
    """Mean and deviation of each feature, from the Spark job."""
    with open(parts(folder, "scale")[0]) as file:
        scale = json.loads(file.readline())
    return [(scale[f"mean_{each}"], scale[f"deviation_{each}"] or 1.0) for each in names]


def scaled(rows, scale):
    return [
        ([1.0, *((x - mean) / deviation for x, (mean, deviation) in zip(xs, scale))], y)
        for xs, y in rows
    ]


def chance(weights, xs):
    total = sum(w * x for w, x in zip(weights, xs))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def log_loss(p, y):
    return -math.log(max(p if y else 1 - p, 1e-12))


def gradient(weights, rows):
    """The sum of these rows' gradients, then their loss and their number."""
    slopes, loss = [0.0] * len(weights), 0.0
    for xs, y in rows:
        p = chance(weights, xs)
        loss += log_loss(p, y)
        slopes = [slope + (p - y) * x for slope, x in zip(slopes, xs)]
    return [*slopes, loss, float(len(rows))]


def evaluated(weights, rows):
    """The metrics of the model on rows that were not trained on."""
    chances = [(chance(weights, xs), y) for xs, y in rows]
    return {
        "accuracy": sum((p > 0.5) == (y > 0.5) for p, y in chances) / len(chances),
        "log_loss": sum(log_loss(p, y) for p, y in chances) / len(chances),
    }


def save(model, metrics, url):
    """Save model and metrics on HDFS, in one step."""
    with tempfile.TemporaryDirectory() as here:
        folder = os.path.join(here, "model")
        os.mkdir(folder)
        for name, content in (("model.json", model), ("metrics.json", metrics)):
            with open(os.path.join(folder, name), "w") as file:
                json.dump(content, file, indent=1)
        print("model:", tony.upload(folder, url), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    args = parser.parse_args()

    me, all_tasks = tony.task(), gang.join()
    features = tony.dataset(args.features)
    files = parts(features, "train")
    names = read_rows(files)[1]
    scale = read_scale(features, names)
    mine = scaled(read_rows(files[all_tasks.rank :: all_tasks.count])[0], scale)
    print(f"{me.role}:{me.index} trains on {len(mine)} rows, {all_tasks.count} tasks", flush=True)

    saved, first, weights = None, 0, [0.0] * (1 + len(names))
    if me.is_chief:
        # A new job starts from the beginning; a restarted session goes on from its checkpoint.
        saved = tony.checkpoints(
            f"{me.checkpoint_dir or 'checkpoints'}/{os.environ.get('JOB_ID', 'by-hand')}",
            background=bool(me.checkpoint_dir),
        )
        newest = saved.latest()
        if newest:
            first = newest[0]
            with open(newest[1]) as file:
                weights = json.load(file)
            print(f"goes on at step {first}", flush=True)
    # All tasks start from the chief's weights: the others add zeros.
    first, *weights = all_tasks.sum([first, *weights] if me.is_chief else [0] * (1 + len(weights)))

    for step in range(int(first) + 1, args.steps + 1):
        *slopes, loss, count = all_tasks.sum(gradient(weights, mine))
        weights = [w - args.rate * slope / count for w, slope in zip(weights, slopes)]
        tony.report(progress=step / args.steps, step=step, metrics={"loss": loss / count})
        if saved and (step % args.checkpoint_every == 0 or step == args.steps):
            saved.save(step, json.dumps(weights).encode())
            print(f"step {step:4d}  loss {loss / count:.4f}", flush=True)

    if me.is_chief:
        metrics = evaluated(weights, scaled(read_rows(parts(features, "eval"))[0], scale))
        tony.report(metrics=metrics)
        print(json.dumps(metrics), flush=True)
        saved.wait()
        model = {"features": names, "scale": scale, "weights": weights}
        save(model, {**metrics, "application_id": os.environ.get("APP_ID", "")}, args.model)
    all_tasks.leave()


if __name__ == "__main__":
    main()
