"""What a training leaves behind, as the events of its assets and as OpenLineage's facets.

A DAG that an asset schedules reads the model's path and its metrics from the event's ``extra``, and
needs no XCom of the DAG that trained it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional
from urllib.parse import urlsplit

import attrs
from airflow.providers.common.compat.sdk import Asset, AssetAlias

MODEL = "model"
"""The key of the model's path in a program's result (``tony.result``), and in an event's extra."""


def model_of(summary: Mapping[str, Any], model_path: Optional[str] = None) -> Optional[str]:
    """The model's path: the DAG's argument, else from the program's result."""
    if model_path:
        return str(model_path)
    result = summary.get("result")
    path = result.get(MODEL) if isinstance(result, Mapping) else None
    return path if isinstance(path, str) and path else None


def extra_of(summary: Mapping[str, Any], model_path: Optional[str] = None) -> Dict[str, Any]:
    """An event's extra: the job, its metrics, and the model's path where it is known."""
    extra: Dict[str, Any] = {
        "application_id": summary.get("application_id"),
        "metrics": dict(summary.get("metrics") or {}),
    }
    model = model_of(summary, model_path)
    if model is not None:
        extra[MODEL] = model
    return extra


def publish(
    context: Mapping[str, Any],
    outlets: Iterable[Any],
    summary: Mapping[str, Any],
    model_path: Optional[str] = None,
) -> None:
    """Set the extra of each outlet's event, which Airflow sends when the task has succeeded.

    An alias becomes the asset of the model's path, where that is a URL.
    """
    extra = extra_of(summary, model_path)
    events = context["outlet_events"]
    for outlet in outlets:
        if isinstance(outlet, Asset):
            events[outlet].extra.update(extra)
        elif isinstance(outlet, AssetAlias) and "://" in extra.get(MODEL, ""):
            events[outlet].add(Asset(extra[MODEL]), extra=extra)


def lineage_of(
    summary: Optional[Mapping[str, Any]], source: str, model_path: Optional[str] = None
) -> Any:
    """A job's ``OperatorLineage``; None where OpenLineage is absent or no job is known."""
    if not summary or not summary.get("application_id"):
        return None
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import Dataset  # type: ignore[import-not-found]
        from openlineage.client.facet_v2 import (  # type: ignore[import-not-found]
            RunFacet,
            external_query_run,
        )
    except ImportError:
        return None

    @attrs.define
    class TonyRunFacet(RunFacet):  # type: ignore[misc]
        """How the job ended. Its schema is RunFacet's, which allows any other fields."""

        outcome: str
        attempts: int
        durationSeconds: Optional[float]
        metrics: Dict[str, float]

    app_id = str(summary["application_id"])
    model = model_of(summary, model_path)
    return OperatorLineage(
        outputs=[] if model is None else [Dataset(*namespace_and_name(model))],
        run_facets={
            "externalQuery": external_query_run.ExternalQueryRunFacet(
                externalQueryId=app_id, source=source
            ),
            "tony": TonyRunFacet(
                outcome=str(summary.get("outcome") or ""),
                attempts=int(summary.get("attempts") or 0),
                durationSeconds=summary.get("duration_s"),
                metrics=dict(summary.get("metrics") or {}),
            ),
        },
    )


def namespace_and_name(path: str) -> tuple[str, str]:
    """A path or URL as OpenLineage's namespace and name of a data set."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"
