"""Distributed training with LightGBM: each worker holds its share of the points.

A step is a round of boosting. The workers add up their histograms, so each of them has the
same model in the end; what a checkpoint holds is that model.
"""

import hashlib
import os
from pathlib import Path

import course
import lightgbm as lgb
import numpy as np

import tony

PARAMETERS = {
    "objective": "regression",
    "num_leaves": 15,
    "learning_rate": 0.1,
    "metric": "l2",
    "num_threads": 1,
    "verbosity": -1,
}


def main():
    args = course.options(__doc__, steps=100)
    parameters = tony.lightgbm_parameters(**PARAMETERS)
    rank, ranks = int(os.environ.get("TONY_LIGHTGBM_RANK", 0)), parameters.get("num_machines", 1)
    run = course.Course(args, chief=rank == 0)
    x, y = course.load(args.data)
    y = y.ravel()
    before = None

    def restore(path):
        nonlocal before
        before = lgb.Booster(model_str=Path(path).read_text())

    def each(env):
        # Each worker measures by itself, so the set to measure by is the whole one.
        run.report(env.iteration, float(env.evaluation_result_list[0][2]))
        run.save(env.iteration + 1, lambda path: Path(path).write_text(env.model.model_to_string()))

    start = run.resume(restore)
    share = lgb.Dataset(*(np.ascontiguousarray(part[rank::ranks]) for part in (x, y)))
    model = lgb.train(
        parameters,
        share,
        args.steps - start,
        valid_sets=[lgb.Dataset(np.ascontiguousarray(x), y, reference=share)],
        init_model=before,
        callbacks=[each],
    )
    trees = model.model_to_string().partition("\nparameters:")[0]  # those differ: ports
    points = model.dump_model(num_iteration=1)["tree_info"][0]["tree_structure"]["internal_count"]
    digest = hashlib.sha256(trees.encode()).hexdigest()[:16]
    print(f"rank {rank}: {points} points, model {digest}", flush=True)
    run.finish(ranks)


if __name__ == "__main__":
    main()
