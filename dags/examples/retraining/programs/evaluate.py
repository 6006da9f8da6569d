"""The gate: is a model good enough to be published?

    evaluate.py --metrics '{"accuracy": 0.91}' --models hdfs:///.../models --at-least 0.8

It has to reach --at-least, and must not be worse than the published model by more than --tolerance.
The exit code is 0 for yes and 3 for no; the last line has the reason. --model URL reads the metrics
saved with a model instead of --metrics.
"""

import argparse
import json
import sys

import published

NO = 3


def judge(metrics, before, name="accuracy", at_least=0.8, tolerance=0.02):
    """(yes or no, why); ``before`` are the metrics of the published model, or None."""
    value = metrics.get(name)
    if value is None:
        return False, f"the training has reported no {name}"
    if value < at_least:
        return False, f"{name} {value:.4f} is below {at_least}"
    old = (before or {}).get(name)
    if old is not None and value < old - tolerance:
        return False, f"{name} {value:.4f} is worse than {old:.4f}, which is published"
    return True, f"{name} {value:.4f} is good enough"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--metrics", help="JSON, as the training has reported them")
    given.add_argument("--model", help="the URL of a model with its metrics.json")
    parser.add_argument("--models", required=True, help="the folder of published models")
    parser.add_argument("--metric", default="accuracy")
    parser.add_argument("--at-least", type=float, default=0.8)
    parser.add_argument("--tolerance", type=float, default=0.02)
    args = parser.parse_args()
    if args.metrics is not None:
        metrics = json.loads(args.metrics)
    else:
        metrics = published.metrics_of(args.model)
    newest = published.newest(args.models)
    before = published.metrics_of(newest) if newest else None
    good, why = judge(metrics, before, args.metric, args.at_least, args.tolerance)
    print(("yes: " if good else "no: ") + why)
    sys.exit(0 if good else NO)


if __name__ == "__main__":
    main()
