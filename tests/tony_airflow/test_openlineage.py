"""OpenLineage's facets; whole only where its provider is installed."""

from __future__ import annotations

import sys
from typing import Any, Dict, List

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from tests.tony_airflow.tasks import Instance, operator
from tony_airflow import assets
from tony_airflow.assets import lineage_of, namespace_and_name

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
    for facet in found.run_facets.values():
        for place in (facet._schemaURL, facet._producer):
            assert place.startswith("https://"), "the specification wants an address"


def test_of_a_job_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[Any] = []
    monkeypatch.setattr(assets, "lineage_of", lambda *words: calls.append(words))
    task = operator("import sys; sys.exit(3)")
    instance = Instance()
    with pytest.raises(AirflowException):
        task.execute(instance.context())
    task.get_openlineage_facets_on_complete(instance)
    ((summary, source, _),) = calls
    assert summary["application_id"] == instance.pushed["application_id"]
    assert summary["outcome"] == "FAILED" and "local" in source
