"""OpenLineage's facets; whole only where its provider is installed."""

from __future__ import annotations

import sys
from typing import Any, Dict

import pytest

from tony_airflow.openlineage import lineage_of, namespace_and_name

SUMMARY: Dict[str, Any] = {
    "application_id": "app_1",
    "outcome": "SUCCEEDED",
    "attempts": 2,
    "duration_s": 5.5,
    "metrics": {"loss": 0.1},
    "result": {"model": "hdfs://nn/models/7"},
}


def test_without_the_provider_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.openlineage.extractors", None)
    assert lineage_of(SUMMARY, "the scheduler local") is None


def test_without_a_job_there_is_none() -> None:
    assert lineage_of(None, "") is None
    assert lineage_of({}, "") is None


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("hdfs://nn:8020/models/7", ("hdfs://nn:8020", "/models/7")),
        ("/models/7", ("file", "/models/7")),
        ("file:///models/7", ("file", "/models/7")),
        ("s3://bucket/models/7", ("s3://bucket", "/models/7")),
    ],
)
def test_places(place: str, found: Any) -> None:
    assert namespace_and_name(place) == found


def test_with_it() -> None:
    pytest.importorskip("airflow.providers.openlineage")
    found = lineage_of(SUMMARY, "the connection prod")
    (output,) = found.outputs
    assert (output.namespace, output.name) == ("hdfs://nn", "/models/7")
    assert found.run_facets["externalQuery"].externalQueryId == "app_1"
    assert found.run_facets["tony"].attempts == 2
