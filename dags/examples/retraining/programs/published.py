"""Finds published models on HDFS, and publishes one. Needs TonY's own modules.

A folder of models has one folder for each version, named TIME-MARK; the mark is a hash of the
model's former path. The version with the greatest name counts.
"""

import hashlib
import json
import os
import tempfile
import time

from tony_hdfs import connect


def newest(models):
    """The URL of the model that counts, or None."""
    hdfs, path, url = connect(models)
    try:
        names = [each.name for each in hdfs.list(path) if each.is_dir and each.name[0].isdigit()]
    except FileNotFoundError:
        return None
    return f"{url}/{max(names)}" if names else None


def metrics_of(model):
    """The metrics that the training has saved with a model."""
    hdfs, path, _ = connect(f"{model}/metrics.json")
    with tempfile.TemporaryDirectory() as here:
        local = os.path.join(here, "metrics.json")
        hdfs.download(path, hdfs.status(path).size, local)
        with open(local) as file:
            return json.load(file)


def publish(model, models):
    """Move the model there; its new URL. An earlier try may have moved it already."""
    hdfs, source, _ = connect(model)
    other, target, url = connect(models)
    if other.namenodes != hdfs.namenodes:
        raise ValueError(f"{model} and {models} are on two file systems: no single step moves it")
    mark = hashlib.sha256(source.encode()).hexdigest()[:8]
    hdfs.mkdirs(target)
    done = [each.name for each in hdfs.list(target) if each.name.endswith(f"-{mark}")]
    try:
        hdfs.status(f"{source}/model.json")
    except FileNotFoundError:
        if not done:
            raise
        return f"{url}/{max(done)}"
    version = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{mark}"
    hdfs.rename(source, f"{target}/{version}")
    return f"{url}/{version}"
