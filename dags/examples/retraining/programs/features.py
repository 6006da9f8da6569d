"""Spark job: cleaned events to one row of numbers a visit.

    spark-submit --master yarn --deploy-mode cluster features.py CLEAN FEATURES

Writes FEATURES/train and FEATURES/eval (CSV with a header; a visit is always in the same one of
the two), and FEATURES/scale (JSON: mean and deviation of each feature in the training rows).
The nodes need no Python package but Spark's own.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

FEATURES = ("views", "searches", "carts", "seconds", "longest", "evening")
EVAL_PERCENT = 25


def one_row_a_visit(events):
    """The features, and the value to predict: did the visitor pay?"""

    def number(kind):
        return F.sum(F.when(F.col("kind") == kind, 1).otherwise(0)).cast("double")

    hour = F.expr("pmod(at div 3600, 24)")
    return events.groupBy("visit").agg(
        number("view").alias("views"),
        number("search").alias("searches"),
        number("cart").alias("carts"),
        F.log1p(F.sum("seconds")).alias("seconds"),
        F.log1p(F.max("seconds")).alias("longest"),
        F.max(F.when(hour >= 18, 1.0).otherwise(0.0)).alias("evening"),
        F.max(F.when(F.col("kind") == "pay", 1).otherwise(0)).alias("paid"),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clean")
    parser.add_argument("features")
    parser.add_argument("--parts", type=int, default=2, help="files of training rows")
    args = parser.parse_args()

    spark = SparkSession.builder.appName(f"features {args.features}").getOrCreate()
    columns = "visit STRING, at LONG, kind STRING, seconds DOUBLE"
    events = spark.read.csv(args.clean, sep="\t", schema=columns)
    rows = one_row_a_visit(events).cache()
    held_out = F.expr(f"pmod(xxhash64(visit), 100) < {EVAL_PERCENT}")
    wanted = [*FEATURES, "paid"]
    train, evaluation = rows.where(~held_out), rows.where(held_out)

    def write(frame, name, parts):
        out = frame.select(*wanted).repartition(parts).write.mode("overwrite")
        out.csv(f"{args.features}/{name}", header=True)

    write(train, "train", args.parts)
    write(evaluation, "eval", 1)
    scale = train.agg(
        *(F.avg(name).alias(f"mean_{name}") for name in FEATURES),
        *(F.stddev_pop(name).alias(f"deviation_{name}") for name in FEATURES),
    )
    scale.coalesce(1).write.mode("overwrite").json(f"{args.features}/scale")
    spark.stop()


if __name__ == "__main__":
    main()
