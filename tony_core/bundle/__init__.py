"""What travels with a job, named by its content.

``plan`` looks and writes nothing, ``stage`` brings, ``gc`` removes what nobody uses. They
are loaded when first used: nodes have only the modules they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_core.bundle.garbage import collect as gc
    from tony_core.bundle.planning import Plan, Upload, plan
    from tony_core.bundle.staging import StagingError, stage

_HOME = {
    "Plan": ("planning", "Plan"),
    "Upload": ("planning", "Upload"),
    "plan": ("planning", "plan"),
    "StagingError": ("staging", "StagingError"),
    "stage": ("staging", "stage"),
    "gc": ("garbage", "collect"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, attribute = _HOME[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


__all__ = ["Plan", "StagingError", "Upload", "gc", "plan", "stage"]
