"""A single Keras `fit`: one task, its checkpoints by a callback. A step is an epoch here."""

import shutil
from pathlib import Path

import course
import keras


class Checkpoints(keras.callbacks.Callback):
    """Tells the job how far the training is, and saves the whole model."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_epoch_end(self, epoch, logs=None):
        """An epoch is done."""
        self.run.report(epoch, float(logs["loss"]))
        self.run.save(epoch + 1, self.write)

    def write(self, path):
        """Keras insists on its own ending."""
        self.model.save(path + ".keras")
        Path(path + ".keras").rename(path)


def main():
    args = course.options(__doc__, steps=60)
    run = course.Course(args, chief=True)
    x, y = course.load(args.data)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((x.shape[1],)),
            keras.layers.Dense(32, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")

    def restore(path):
        nonlocal model
        shutil.copy(path, "newest.keras")  # that ending again
        model = keras.models.load_model("newest.keras")

    start = run.resume(restore)
    model.fit(
        x,
        y,
        batch_size=args.batch,
        initial_epoch=start,
        epochs=args.steps,
        callbacks=[Checkpoints(run)],
        verbose=0,
    )
    run.finish(1)


if __name__ == "__main__":
    main()
