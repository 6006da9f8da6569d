"""Publishes a model: moves its folder on HDFS, whole and in one step, to where models are found.

    publish.py --model hdfs:///.../runs/R/model --models hdfs:///.../models

The model that counts is the one with the greatest name (they begin with the time): who looks
finds the old one or the new one, at any moment. Done twice, it is done once. Its last line says
what was published, as JSON: path, version, metrics, application_id.
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
    told = {
        "path": path,
        "version": path.rsplit("/", 1)[1],
        "metrics": metrics,
        "application_id": application,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
