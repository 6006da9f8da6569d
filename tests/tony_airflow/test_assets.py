"""What an asset's event tells of a training."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from airflow.providers.common.compat.sdk import Asset, AssetAlias

from tony_airflow.assets import extra_of, publish

SUMMARY: Dict[str, Any] = {
    "application_id": "app_1",
    "metrics": {"loss": 0.1},
    "result": {"model": "hdfs://nn/models/7", "rows": 5},
}


class Event:
    """As Airflow keeps one until the task has succeeded."""

    def __init__(self) -> None:
        self.extra: Dict[str, Any] = {"mine": 1}
        self.added: Dict[str, Any] = {}

    def add(self, asset: Any, extra: Any = None) -> None:
        self.added[asset.uri] = extra


class Events(Dict[Any, Event]):
    def __missing__(self, key: Any) -> Event:
        self[key] = Event()
        return self[key]


def test_the_models_path_from_the_result_or_from_the_dag() -> None:
    expected = {"application_id": "app_1", "metrics": {"loss": 0.1}}
    assert extra_of(SUMMARY) == {**expected, "model": "hdfs://nn/models/7"}
    assert extra_of(SUMMARY, "/models/8")["model"] == "/models/8"
    assert extra_of({**SUMMARY, "result": 5}) == expected


def test_an_asset_and_an_alias() -> None:
    asset, alias = Asset("model"), AssetAlias("models")
    events: Any = Events()
    publish({"outlet_events": events}, [asset, alias, "no asset"], SUMMARY)
    extra = {"application_id": "app_1", "metrics": {"loss": 0.1}, "model": "hdfs://nn/models/7"}
    assert events[asset].extra == {"mine": 1, **extra}
    assert events[alias].added == {"hdfs://nn/models/7": extra}


@pytest.mark.parametrize("summary", [{"application_id": "app_1"}, {**SUMMARY, "result": None}])
def test_an_alias_without_a_place_stays_without(summary: Dict[str, Any]) -> None:
    alias = AssetAlias("models")
    events: Any = Events()
    publish({"outlet_events": events}, [alias], summary)
    assert alias not in events
