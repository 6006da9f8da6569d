"""What travels with a job, named by its content.

``plan`` finds what must be staged and writes nothing, ``stage`` writes it, ``gc`` removes what no
application uses. ``client/`` stays on the client; nodes have the rest. So these names are imported
when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_core.bundle.client.destination import Upload
    from tony_core.bundle.client.planning import Plan, plan
    from tony_core.bundle.client.staging import publish_runtime, stage
    from tony_core.bundle.client.staging_errors import StagingError
    from tony_core.bundle.local.garbage import collect as gc

_HOME = {
    "Plan": ("client.planning", "Plan"),
    "Upload": ("client.destination", "Upload"),
    "plan": ("client.planning", "plan"),
    "publish_runtime": ("client.staging", "publish_runtime"),
    "StagingError": ("client.staging_errors", "StagingError"),
    "stage": ("client.staging", "stage"),
    "gc": ("local.garbage", "collect"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOME[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


__all__ = ["Plan", "StagingError", "Upload", "gc", "plan", "publish_runtime", "stage"]
