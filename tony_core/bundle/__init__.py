"""What travels with a job, named by its content.

``plan`` looks and writes nothing, ``stage`` brings, ``gc`` removes what nobody uses. They
are loaded when first used: nodes have only the modules they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_core.bundle.failures import StagingError
    from tony_core.bundle.local.garbage import collect as gc
    from tony_core.bundle.place import Upload
    from tony_core.bundle.planning import Plan, plan
    from tony_core.bundle.publish import publish_runtime
    from tony_core.bundle.staging import stage

_HOME = {
    "Plan": ("planning", "Plan"),
    "Upload": ("place", "Upload"),
    "plan": ("planning", "plan"),
    "publish_runtime": ("publish", "publish_runtime"),
    "StagingError": ("failures", "StagingError"),
    "stage": ("staging", "stage"),
    "gc": ("local.garbage", "collect"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, attribute = _HOME[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


__all__ = ["Plan", "StagingError", "Upload", "gc", "plan", "publish_runtime", "stage"]
