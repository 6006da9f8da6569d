"""Distributed training with Ray: an actor on each node computes gradients of its share.

The chief's program is the driver; the other task is a node of its cluster, and never comes
past `tony.ray_init()`.
"""

import course
import numpy as np
import ray

import tony


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Share:
    """Every so-many-th point, and the gradients there."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def node(self):
        return ray.get_runtime_context().get_node_id()

    def slopes(self, weights):
        hidden = np.tanh(self.x @ weights["w1"] + weights["b1"])
        error = hidden @ weights["w2"] + weights["b2"] - self.y
        back = 2 * error / len(self.x)
        inner = (back @ weights["w2"].T) * (1 - hidden**2)
        return float(np.mean(error**2)), {
            "w1": self.x.T @ inner,
            "b1": inner.sum(0),
            "w2": hidden.T @ back,
            "b2": back.sum(0),
        }


def main():
    args = course.options(__doc__, steps=400)
    tony.ray_init()
    run = course.Course(args, chief=True)
    x, y = course.load(args.data)
    weights = course.first_weights(x.shape[1])
    speed = {name: np.zeros_like(value) for name, value in weights.items()}

    def restore(path):
        for name, value in course.load_arrays(path).items():
            kind, _, key = name.partition(".")
            {"weights": weights, "speed": speed}[kind][key] = value

    start = run.resume(restore)
    count = len([node for node in ray.nodes() if node["Alive"]])
    shares = [Share.remote(x[rank::count], y[rank::count]) for rank in range(count)]
    nodes = set(ray.get([share.node.remote() for share in shares]))
    for step in range(start, args.steps):
        found = ray.get([share.slopes.remote(weights) for share in shares])
        for name in weights:
            slope = np.mean([slopes[name] for _, slopes in found], axis=0)
            speed[name] = 0.9 * speed[name] - 0.05 * slope
            weights[name] = weights[name] + speed[name]
        run.report(step, float(np.mean([loss for loss, _ in found])))
        state = {f"weights.{name}": value for name, value in weights.items()}
        state.update({f"speed.{name}": value for name, value in speed.items()})
        run.save(step + 1, course.save_arrays(state))
    run.finish(len(nodes))


if __name__ == "__main__":
    main()
