"""New data comes, and comes again: a good model is published, a bad one is not."""

from __future__ import annotations

import json

import pytest

from tests.cluster.pipeline.pipeline import Pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000)]


def publishes(pipeline: Pipeline) -> str:
    """The id of the run that publishes the first model."""
    # The first run is the clock's, and finds nothing.
    first = pipeline.ended("retraining", 1)
    states = pipeline.states("retraining", first)
    assert states.pop("new_data") == "success"
    assert set(states.values()) == {"skipped"}

    pipeline.arrives("day1.jsonl")
    second = pipeline.ended("retraining", 2)
    assert set(pipeline.states("retraining", second).values()) == {"success"}
    return second


def test_a_model_is_published_when_it_is_good_enough(pipeline: Pipeline) -> None:
    # Data comes: MapReduce, Spark and TonY have all run on the cluster.
    second = publishes(pipeline)
    kinds = {app["applicationType"] for app in pipeline.cluster.applications("FINISHED")}
    assert {"MAPREDUCE", "SPARK", "TONY"} <= {kind.upper() for kind in kinds}

    # The next DAG gets what was published.
    (event,) = pipeline.events("retraining_model")
    model = event["extra"]
    assert model == pipeline.rest.xcom(("retraining", second, "publish"))
    assert pipeline.models() == {model["version"]}
    assert model["path"].endswith(f"/models/{model['version']}")
    assert model["metrics"]["accuracy"] > 0.8
    trained = pipeline.rest.xcom(("retraining", second, "train"), "application_id")
    assert model["application_id"] == trained
    metrics = pipeline.rest.xcom(("retraining", second, "train"), "metrics")
    assert metrics["accuracy"] == pytest.approx(model["metrics"]["accuracy"])
    saved = f"{model['path']}/model.json".split("/", 3)[3]
    assert len(json.loads(pipeline.cluster.hdfs.get(f"/{saved}"))["weights"]) == 7

    scored = pipeline.rest.xcom(("scoring", pipeline.ended("scoring", 1), "score"))
    assert scored["a look"] < 0.5 < scored["a full cart"]

    # Beside a better model it does not pass the gate: nothing is published, no DAG hears of it.
    better = "99990101T000000Z-better"
    pipeline.puts(f"models/{better}/metrics.json", {"accuracy": metrics["accuracy"] + 0.1})
    pipeline.rest.clear(("retraining", second, "good_enough"), downstream=True)
    pipeline.rest.wait(("retraining", second, "publish"), "skipped")
    assert pipeline.models() == {model["version"], better}
    assert len(pipeline.events("retraining_model")) == 1
    assert len(pipeline.runs("scoring")) == 1


@pytest.mark.nightly  # the same steps a second time: the gate is also in the test above
def test_worse_data_publishes_nothing(pipeline: Pipeline) -> None:
    publishes(pipeline)
    before = pipeline.models()
    assert len(before) == 1
    pipeline.ended("scoring", 1)
    pipeline.arrives("day2.jsonl", "--seed", "2", "--visits", "3000", "--wrong", "1")
    third = pipeline.ended("retraining", 3)
    states = pipeline.states("retraining", third)
    assert states.pop("publish") == "skipped"
    assert set(states.values()) == {"success"}
    assert pipeline.rest.xcom(("retraining", third, "train"), "metrics")["accuracy"] < 0.8
    assert pipeline.models() == before
    assert len(pipeline.events("retraining_model")) == 1
    assert len(pipeline.runs("scoring")) == 1
