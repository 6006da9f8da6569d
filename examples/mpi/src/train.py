"""Data-parallel training with nothing but MPI and numpy.

Each rank works out the gradient of its share of the batch; an all-reduce adds them up, so
every rank takes the same step.
"""

import os

import course
import numpy as np
from mpi4py import MPI


def gradient(weights, x, y):
    """Loss (summed, not averaged) and gradient of a network with one hidden layer."""
    hidden = np.tanh(x @ weights["w1"] + weights["b1"])
    error = hidden @ weights["w2"] + weights["b2"] - y
    back = (2 * error) @ weights["w2"].T * (1 - hidden**2)
    return float((error**2).sum()), {
        "w1": x.T @ back,
        "b1": back.sum(axis=0),
        "w2": hidden.T @ (2 * error),
        "b2": (2 * error).sum(axis=0),
    }


def main():
    args = course.options(__doc__, steps=400)
    world = MPI.COMM_WORLD
    expected = int(os.environ.get("PMI_SIZE", world.size))
    if world.size != expected:
        raise SystemExit(f"a world of {world.size}, not {expected}: this MPI does not speak PMI-1")
    run = course.Course(args, chief=world.rank == 0)
    x, y = course.load(args.data)
    weights = course.first_weights(x.shape[1])
    speed = {name: np.zeros_like(value) for name, value in weights.items()}

    def restore(path):
        for name, value in course.load_arrays(path).items():
            kind, _, key = name.partition(".")
            {"weights": weights, "speed": speed}[kind][key] = value

    for step in range(run.resume(restore), args.steps):
        loss, slopes = gradient(
            weights, *course.batch_at(step, x, y, args.batch, world.rank, world.size)
        )
        loss = world.allreduce(loss) / args.batch
        for name, slope in slopes.items():
            total = np.empty_like(slope)
            world.Allreduce(np.ascontiguousarray(slope), total)
            speed[name] = 0.9 * speed[name] - 0.02 * total / args.batch
            weights[name] = weights[name] + speed[name]
        run.report(step, loss)
        state = {f"weights.{name}": value for name, value in weights.items()}
        state.update({f"speed.{name}": value for name, value in speed.items()})
        run.save(step + 1, course.save_arrays(state))
    run.finish(world.size)


if __name__ == "__main__":
    main()
