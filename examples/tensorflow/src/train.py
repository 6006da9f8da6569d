"""Data-parallel training with TensorFlow: all-reduce by MultiWorkerMirroredStrategy.

A loop of our own over tf.Variable: Keras 3's `fit` does not run under this strategy.
"""

import json
import os

import course
import tensorflow as tf


def main():
    args = course.options(__doc__, steps=400)
    # First of all: the strategy's own setting up is the process's first TensorFlow operation.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    ranks = strategy.num_replicas_in_sync
    rank = place()
    run = course.Course(args, chief=rank == 0)
    x, y = course.load(args.data)
    weights = course.first_weights(x.shape[1])
    speed = {f"speed.{name}": value * 0 for name, value in weights.items()}
    start_values = {**{f"weights.{name}": value for name, value in weights.items()}, **speed}
    start = run.resume(lambda path: start_values.update(course.load_arrays(path)))
    with strategy.scope():
        variables = {
            name: tf.Variable(value, name=name.replace(".", "_"))
            for name, value in start_values.items()
        }

    def in_replica(x, y):
        names = [name for name in variables if name.startswith("weights.")]
        with tf.GradientTape() as tape:
            hidden = tf.tanh(x @ variables["weights.w1"] + variables["weights.b1"])
            guess = hidden @ variables["weights.w2"] + variables["weights.b2"]
            loss = tf.reduce_sum((guess - y) ** 2) / args.batch
        slopes = tape.gradient(loss, [variables[name] for name in names])
        context = tf.distribute.get_replica_context()
        slopes = context.all_reduce(tf.distribute.ReduceOp.SUM, slopes)
        for name, slope in zip(names, slopes, strict=True):
            momentum = variables[name.replace("weights", "speed")]
            momentum.assign(0.9 * momentum - 0.02 * slope)
            variables[name].assign_add(momentum)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, loss)

    @tf.function
    def train_step(x, y):
        return strategy.run(in_replica, args=(x, y))

    for step in range(start, args.steps):
        mine = course.batch_at(step, x, y, args.batch, rank, ranks)
        loss = train_step(*(tf.constant(part) for part in mine))
        run.report(step, float(loss))
        run.save(
            step + 1,
            course.save_arrays({name: value.numpy() for name, value in variables.items()}),
        )
    run.finish(ranks)


def place():
    """This process's place among those that train: the chief's, then the workers' in order."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = config.get("task", {"type": "worker", "index": 0})
    chiefs = len(config.get("cluster", {}).get("chief", []))
    return task["index"] + (chiefs if task["type"] == "worker" else 0)


if __name__ == "__main__":
    main()
