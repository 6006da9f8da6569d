"""Data-parallel training with MXNet: a distributed key-value store adds up the gradients.

Scheduler and servers get no further than the import of MXNet.
"""

import os

import course
import mxnet as mx
from mxnet import autograd


def main():
    args = course.options(__doc__, steps=400)
    store = mx.kv.create("dist_sync")  # reads DMLC_*
    rank, ranks = store.rank, store.num_workers
    # Its own numbers are not the tasks': who writes is the job's chief, and by hand the first.
    chief = "IS_CHIEF" in os.environ if "JOB_ID" in os.environ else rank == 0
    run = course.Course(args, chief=chief)
    x, y = course.load(args.data)
    weights = course.first_weights(x.shape[1])
    weights = {name: mx.nd.array(value) for name, value in weights.items()}
    speed = {name: mx.nd.zeros_like(value) for name, value in weights.items()}

    def restore(path):
        for name, value in course.load_arrays(path).items():
            kind, _, key = name.partition(".")
            {"weights": weights, "speed": speed}[kind][key][:] = value

    start = run.resume(restore)
    total = {name: mx.nd.zeros_like(value) for name, value in weights.items()}
    total["loss"] = mx.nd.zeros((1,))
    for name, value in total.items():
        store.init(name, value)
    for value in weights.values():
        value.attach_grad()

    for step in range(start, args.steps):
        mine = course.batch_at(step, x, y, args.batch, rank, ranks)
        inputs, target = (mx.nd.array(part) for part in mine)
        with autograd.record():
            hidden = mx.nd.tanh(mx.nd.dot(inputs, weights["w1"]) + weights["b1"])
            guess = mx.nd.dot(hidden, weights["w2"]) + weights["b2"]
            loss = ((guess - target) ** 2).sum()
        loss.backward()
        mine = {name: value.grad for name, value in weights.items()}
        mine["loss"] = loss.reshape((1,))
        for name, value in mine.items():
            store.push(name, value)
            store.pull(name, out=total[name])  # what all have pushed, together
        for name, value in weights.items():
            speed[name][:] = 0.9 * speed[name] - 0.02 * total[name] / args.batch
            value[:] = value + speed[name]
        run.report(step, total["loss"].asscalar() / args.batch)
        state = {f"weights.{name}": value.asnumpy() for name, value in weights.items()}
        state.update({f"speed.{name}": value.asnumpy() for name, value in speed.items()})
        run.save(step + 1, course.save_arrays(state))
    run.finish(ranks)


if __name__ == "__main__":
    main()
