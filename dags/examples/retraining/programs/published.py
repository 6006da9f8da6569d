"""Where published models are on HDFS, and how one comes there. Needs TonY's own modules.

A folder of models holds one folder a version, called TIME-MARK, where the mark is made of the
place that the model comes from. The greatest name counts.
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
    """What the training has put beside a model."""
    hdfs, path, _ = connect(f"{model}/metrics.json")
    with tempfile.TemporaryDirectory() as here:
        local = os.path.join(here, "metrics.json")
        hdfs.download(path, hdfs.status(path).size, local)
        with open(local) as file:
            return json.load(file)


def publish(model, models):
    """Moves it there; the new URL. After a try whose answer was lost it is there already."""
    hdfs, source, _ = connect(model)
    other, target, url = connect(models)
    if other.namenodes != hdfs.namenodes:
        raise ValueError(f"{model} and {models} are on two file systems: nothing moves it at once")
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
