"""New data comes, and comes again: a good model is published, a bad one is not."""

from __future__ import annotations

import json

import pytest

from tests.cluster.pipeline.pipeline import Pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000)]


def test_a_model_is_published_when_it_is_good_enough(pipeline: Pipeline) -> None:
    # The first run is the clock's, and finds nothing.
    first = pipeline.ended("retraining", 1)
    states = pipeline.states("retraining", first)
    assert states.pop("new_data") == "success"
    assert set(states.values()) == {"skipped"}

    # Data comes: MapReduce, Spark and TonY have all run on the cluster.
    pipeline.arrives("day1.jsonl")
    second = pipeline.ended("retraining", 2)
    assert set(pipeline.states("retraining", second).values()) == {"success"}
    kinds = {app["applicationType"] for app in pipeline.cluster.applications("FINISHED")}
    assert {"MAPREDUCE", "SPARK", "TONY"} <= {kind.upper() for kind in kinds}

    # What the next DAG is told is what was published.
    (event,) = pipeline.events("retraining_model")
    told = event["extra"]
    assert told == pipeline.rest.xcom(("retraining", second, "publish"))
    assert pipeline.models() == {told["version"]}
    assert told["path"].endswith(f"/models/{told['version']}")
    assert told["metrics"]["accuracy"] > 0.8
    trained = pipeline.rest.xcom(("retraining", second, "train"), "application_id")
    assert told["application_id"] == trained
    metrics = pipeline.rest.xcom(("retraining", second, "train"), "metrics")
    assert metrics["accuracy"] == pytest.approx(told["metrics"]["accuracy"])
    saved = f"{told['path']}/model.json".split("/", 3)[3]
    assert len(json.loads(pipeline.cluster.hdfs.get(f"/{saved}"))["weights"]) == 7

    scored = pipeline.rest.xcom(("scoring", pipeline.ended("scoring", 1), "score"))
    assert scored["a look"] < 0.5 < scored["a full cart"]

    # Worse data: the gate stops it, nothing is published, nobody is told.
    pipeline.arrives("day2.jsonl", "--seed", "2", "--visits", "3000", "--wrong", "1")
    third = pipeline.ended("retraining", 3)
    states = pipeline.states("retraining", third)
    assert states.pop("publish") == "skipped"
    assert set(states.values()) == {"success"}
    assert pipeline.rest.xcom(("retraining", third, "train"), "metrics")["accuracy"] < 0.8
    assert pipeline.models() == {told["version"]}
    assert len(pipeline.events("retraining_model")) == 1
    assert len(pipeline.runs("scoring")) == 1
