"""The DAGs of the pipeline parse, and are put together as they should be."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import jinja2
import pytest

from tests.dags.retraining import RETRAINING


@pytest.fixture(scope="module")
def dags() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how Airflow reads .airflowignore
        bag = DagBag(dag_folder=str(RETRAINING))
    assert bag.import_errors == {}
    return bag.dags


def test_dags_are_found_and_programs_are_not_imported(dags: Any) -> None:
    assert set(dags) == {"retraining", "scoring"}
    for dag in dags.values():
        assert {"tony", "example"} <= set(dag.tags)
        assert dag.doc_md and dag.description
        assert dag.max_active_runs == 1
        assert not dag.catchup


def test_the_steps_come_one_after_the_other(dags: Any) -> None:
    dag = dags["retraining"]
    order = ["new_data", "clean", "features", "train", "good_enough", "publish"]
    assert set(dag.task_ids) == set(order)
    for before, after in itertools.pairwise(order):
        assert after in dag.get_task(before).downstream_task_ids
    assert [one.name for one in dag.get_task("publish").outlets] == ["retraining_model"]


def test_two_roles_train(dags: Any) -> None:
    roles = dags["retraining"].get_task("train").roles
    assert {name: one["instances"] for name, one in roles.items()} == {"chief": 1, "worker": 1}


def test_the_places_of_a_run_are_names_that_hdfs_takes(dags: Any) -> None:
    train = dags["retraining"].get_task("train")
    run_id = "asset_triggered__2026-11-21T17:23:55.801660+00:00_aBcD1234"
    context = {"params": {"data": "hdfs:///data/retraining"}, "run_id": run_id}
    words = jinja2.Template(train.task_params).render(context).split()
    place = "hdfs:///data/retraining/runs/asset_triggered__2026-11-21T172355.801660-0000_aBcD1234"
    assert words == ["--features", f"{place}/features", "--model", f"{place}/model"]


def test_the_second_waits_for_what_the_first_gives(dags: Any) -> None:
    from airflow.sdk import Asset

    assert list(dags["scoring"].timetable.asset_condition.objects) == [Asset("retraining_model")]
    assert Asset("retraining_raw") in dags["retraining"].timetable.asset_condition.objects
