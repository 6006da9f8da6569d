"""Which pipeline a job belongs to, by the tags of Airflow's and Azkaban's plugins."""

from __future__ import annotations

import pytest

from tony_airflow.tags import TaskTags
from tony_azkaban.execution import Execution
from tony_core.history.figures import pipeline_of


def test_a_task_of_airflow() -> None:
    tags = TaskTags("Nightly", "scheduled__2026-11-25", "train", -1, 0)
    assert pipeline_of(tags.added_to(("exp1",))) == "airflow:Nightly.train"
    mapped = tags._replace(map_index=3)
    assert pipeline_of(mapped.added_to(())) == "airflow:Nightly.train[3]"


def test_without_its_labels_a_job_is_in_no_pipeline() -> None:
    own = tuple(f"tag{number}" for number in range(7))
    tags = TaskTags("Nightly", "scheduled__2026-11-25", "train", -1, 0)
    assert pipeline_of(tags.added_to(own)) == ""
    assert pipeline_of(tags.both) == ""


def test_a_job_of_azkaban() -> None:
    execution = Execution("train", "12", flow="nightly", project="search", user="ann")
    assert pipeline_of(execution.tags().values()) == "azkaban:search/nightly.train"
    capitals = execution._replace(job="outer:Train")
    assert pipeline_of(capitals.tags().values()) == "azkaban:search/nightly.outer:Train"


@pytest.mark.parametrize(
    "tags", [(), ("airflow.dag:",), ("x", "", ":", "airflow.dag:a"), (1, None)]
)
def test_any_other_job_is_in_none(tags: object) -> None:
    assert pipeline_of(tags) == ""  # type: ignore[arg-type]
