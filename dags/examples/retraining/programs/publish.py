"""Publishes a model: moves its folder on HDFS, in one step, to the folder of published models.

    publish.py --model hdfs:///.../runs/R/model --models hdfs:///.../models

The model with the greatest name counts (names begin with the time): a reader finds the old one or
the new one, at any moment. A second run of it changes nothing. Its last line is the published model
as JSON: path, version, metrics, application_id.
"""

import argparse
import json

import published


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--models", required=True)
    args = parser.parse_args()
    path = published.publish(args.model, args.models)
    metrics = published.metrics_of(path)
    application = metrics.pop("application_id", "")
    model = {
        "path": path,
        "version": path.rsplit("/", 1)[1],
        "metrics": metrics,
        "application_id": application,
    }
    print(json.dumps(model))


if __name__ == "__main__":
    main()
