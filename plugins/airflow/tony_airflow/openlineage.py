"""What OpenLineage is told of a job, where its provider is installed.

The application's id as the run's external query, what the job came to as a facet of its own, and
the model as an output.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional
from urllib.parse import urlsplit

from tony_airflow.assets import model_of


def lineage_of(
    summary: Optional[Mapping[str, Any]], source: str, model_path: Optional[str] = None
) -> Any:
    """An ``OperatorLineage``; None where OpenLineage is absent or no job is known."""
    if not summary or not summary.get("application_id"):
        return None
    try:
        import attrs
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
        """How the job ended. Its schema is RunFacet's, which lets a facet have what it likes."""

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


def namespace_and_name(place: str) -> tuple[str, str]:
    """A path or URL as OpenLineage names data sets: where, and what there."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"
