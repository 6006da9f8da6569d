"""Uses each model that is published: the asset starts this DAG, and its event names the model.

It is an example of a user of models: it loads the new one from HDFS, and scores three visits.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import Any, Dict, List
from urllib.parse import urlsplit

from airflow.providers.apache.hdfs.hooks.webhdfs import WebHDFSHook
from airflow.sdk import DAG, Asset, task

WEBHDFS = "webhdfs_default"
MODEL = Asset("retraining_model")

VISITS: Dict[str, Dict[str, float]] = {
    "a look": {"views": 1, "seconds": 2.0, "longest": 2.0},
    "a long search": {"views": 4, "searches": 6, "seconds": 5.5, "longest": 4.5},
    "a full cart": {"views": 3, "searches": 1, "carts": 3, "seconds": 5.0, "longest": 4.5},
}


with DAG(
    "scoring",
    description="Uses the model that has just been published",
    schedule=[MODEL],
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2},
    doc_md=__doc__,
    tags=["tony", "example"],
) as dag:

    @task
    def which(triggering_asset_events: Any = None) -> Dict[str, Any]:
        """The newest of the events: one run may have several."""
        events: List[Any] = triggering_asset_events[MODEL]
        return dict(max((event.extra for event in events), key=lambda extra: extra["version"]))

    @task
    def score(published: Dict[str, Any]) -> Dict[str, float]:
        """The chance that each of the visitors pays."""
        path = urlsplit(published["path"]).path + "/model.json"
        model = json.loads(WebHDFSHook(WEBHDFS).read_file(path))
        found = {}
        for name, visit in VISITS.items():
            total = model["weights"][0]
            for feature, weight, (mean, deviation) in zip(
                model["features"], model["weights"][1:], model["scale"], strict=True
            ):
                total += weight * (visit.get(feature, 0.0) - mean) / deviation
            found[name] = round(1 / (1 + math.exp(-total)), 3)
        print(published["version"], found)
        return found

    score(which())
