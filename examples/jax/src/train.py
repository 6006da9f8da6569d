"""Data-parallel training with JAX over all processes of the job.

One mesh spans every process; the batch is split over it and the weights are not, so the
compiler puts in the all-reduce.
"""

import course
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import tony


def loss_of(weights, x, y):
    """Mean squared error of a network with one hidden layer."""
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    return jnp.mean((hidden @ weights["w2"] + weights["b2"] - y) ** 2)


@jax.jit
def train_step(weights, speed, x, y):
    """One step of gradient descent with momentum."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
    speed = jax.tree.map(lambda v, g: 0.9 * v - 0.02 * g, speed, slopes)
    return jax.tree.map(jnp.add, weights, speed), speed, loss


def main():
    args = course.options(__doc__, steps=400)
    tony.jax_initialize()
    rank, ranks = jax.process_index(), jax.process_count()
    run = course.Course(args, chief=rank == 0)
    x, y = course.load(args.data)

    mesh = Mesh(np.array(jax.devices()), ("batch",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("batch"))
    weights = course.first_weights(x.shape[1])
    speed = {name: np.zeros_like(value) for name, value in weights.items()}

    def restore(path):
        for name, value in course.load_arrays(path).items():
            kind, _, key = name.partition(".")
            {"weights": weights, "speed": speed}[kind][key] = value

    start = run.resume(restore)
    weights, speed = jax.device_put((weights, speed), everywhere)
    for step in range(start, args.steps):
        mine = course.batch_at(step, x, y, args.batch, rank, ranks)
        batch = [jax.make_array_from_process_local_data(split, part) for part in mine]
        weights, speed, loss = train_step(weights, speed, *batch)
        run.report(step, float(loss))
        state = {f"weights.{name}": value for name, value in weights.items()}
        state.update({f"speed.{name}": value for name, value in speed.items()})
        run.save(step + 1, course.save_arrays(state))
    run.finish(ranks)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
