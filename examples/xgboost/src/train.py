"""Distributed training with XGBoost: each worker holds its share of the points.

A step is a round of boosting. The workers add up their histograms, so each of them has the
same model in the end; what a checkpoint holds is that model.
"""

import hashlib
import json
from pathlib import Path

import course
import xgboost as xgb

import tony

PARAMETERS = {"objective": "reg:squarederror", "max_depth": 4, "eta": 0.1, "nthread": 1}


class Each(xgb.callback.TrainingCallback):
    """Tells and saves what each round has brought."""

    def __init__(self, run, start):
        super().__init__()
        self.run, self.start = run, start

    def after_iteration(self, model, epoch, evals_log):
        step = self.start + epoch
        self.run.report(step, float(evals_log["train"]["rmse"][-1]) ** 2)
        self.run.save(step + 1, lambda path: Path(path).write_bytes(model.save_raw("ubj")))
        return False


def main():
    args = course.options(__doc__, steps=100)
    x, y = course.load(args.data)
    with tony.xgboost_communicator():
        rank, ranks = xgb.collective.get_rank(), xgb.collective.get_world_size()
        run = course.Course(args, chief=rank == 0)
        before = None

        def restore(path):
            nonlocal before
            before = xgb.Booster()
            before.load_model(bytearray(Path(path).read_bytes()))

        start = run.resume(restore)
        share = xgb.DMatrix(x[rank::ranks], label=y[rank::ranks])
        model = xgb.train(
            PARAMETERS,
            share,
            args.steps - start,
            evals=[(share, "train")],  # the error over all workers' points
            xgb_model=before,
            callbacks=[Each(run, start)],
            verbose_eval=False,
        )
    # What the first tree's root covers: the points of all workers.
    root = json.loads(model[0].get_dump(dump_format="json", with_stats=True)[0])
    digest = hashlib.sha256(bytes(model.save_raw("ubj"))).hexdigest()[:16]
    print(f"rank {rank}: {root['cover']:.0f} points, model {digest}", flush=True)
    run.finish(ranks)


if __name__ == "__main__":
    main()
