"""Training with TensorFlow's parameter servers.

The chief leads: it hands steps to the workers and reads their losses; the variables live on
the parameter servers. Workers and parameter servers only serve, for as long as the job
lasts: the master ends them when the chief is done.
"""

import course
import tensorflow as tf


def serve(cluster):
    """A worker or a parameter server; never returns."""
    server = tf.distribute.Server(
        cluster.cluster_spec(),
        job_name=cluster.task_type,
        task_index=cluster.task_id,
        protocol=cluster.rpc_layer or "grpc",
    )
    server.join()


def lead(cluster, args):
    """The chief."""
    run = course.Course(args, chief=True)
    x, y = course.load(args.data)
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = len(cluster.cluster_spec().job_tasks("worker"))

    values = course.first_weights(x.shape[1])
    start = run.resume(lambda path: values.update(course.load_arrays(path)))
    with strategy.scope():
        variables = {name: tf.Variable(value, name=name) for name, value in values.items()}

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(x @ variables["w1"] + variables["b1"])
            guess = hidden @ variables["w2"] + variables["b2"]
            loss = tf.reduce_mean((guess - y) ** 2)
        slopes = tape.gradient(loss, list(variables.values()))
        for variable, slope in zip(variables.values(), slopes, strict=True):
            variable.assign_sub(0.1 * slope)
        return loss

    for step in range(start, args.steps):
        # One step of the course: every worker takes a share, each when it is free.
        shares = [
            coordinator.schedule(
                train_step,
                args=tuple(
                    tf.constant(part)
                    for part in course.batch_at(step, x, y, args.batch, share, workers)
                ),
            )
            for share in range(workers)
        ]
        coordinator.join()
        run.report(step, float(sum(share.fetch() for share in shares)) / workers)
        run.save(
            step + 1,
            course.save_arrays({name: value.numpy() for name, value in variables.items()}),
        )
    run.finish(workers)


def main():
    args = course.options(__doc__, steps=300)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    else:
        lead(cluster, args)


if __name__ == "__main__":
    main()
