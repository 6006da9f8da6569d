"""What a training leaves behind, told to those who wait for it: the asset's event.

A DAG that is scheduled by the asset reads where the model is and how good it is from the event's
``extra``, and needs no XCom of the DAG that trained it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional

MODEL = "model"
"""What a program's result (``tony.result``) calls the place of its model."""


def model_of(summary: Mapping[str, Any], model_path: Optional[str] = None) -> Optional[str]:
    """Where the model is: as the DAG says, else as the program said."""
    if model_path:
        return str(model_path)
    result = summary.get("result")
    said = result.get(MODEL) if isinstance(result, Mapping) else None
    return said if isinstance(said, str) and said else None


def extra_of(summary: Mapping[str, Any], model_path: Optional[str] = None) -> Dict[str, Any]:
    """An event's extra: the model's place where it is known, and what the job came to."""
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
    """Give each asset among the outlets its event's extra; Airflow sends them with the success.

    An alias becomes the asset of the model's own address, where that is one.
    """
    from airflow.providers.common.compat.sdk import Asset, AssetAlias

    extra = extra_of(summary, model_path)
    events = context["outlet_events"]
    for outlet in outlets:
        if isinstance(outlet, Asset):
            events[outlet].extra.update(extra)
        elif isinstance(outlet, AssetAlias) and "://" in extra.get(MODEL, ""):
            events[outlet].add(Asset(extra[MODEL]), extra=extra)
