"""A cluster with MapReduce and Spark, and an Airflow that has the example."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.cluster.airflow.standing import Airflow
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.pipeline.pipeline import Pipeline, copied
from tests.cluster.pipeline.pipeline import environment as environment_of


@pytest.fixture
def pipeline(
    hadoop: GetHadoop,
    environment: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pipeline]:
    """Up, with no data yet."""
    spark = next(environment("spark").glob("lib/python3*/site-packages/pyspark"))
    monkeypatch.setenv("SPARK_HOME", str(spark))
    cluster = hadoop("mapreduce", "spark")
    data = f"hdfs:///data/retraining-{secrets.token_hex(4)}"
    dags = copied(tmp_path / "dags", data)
    airflow = Airflow.up(tmp_path / "airflow", {}, environment_of(cluster, dags))
    try:
        made = Pipeline(airflow, cluster, data, tmp_path)
        made.switch_on()
        yield made
    finally:
        airflow.remove()
