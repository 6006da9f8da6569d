"""What a job is; ``from tony_core.job import job`` makes one in a Python program.

The function is imported when it is asked for: nodes, which have no lxml, import other modules here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_core.job.load import job as job

__all__ = ["job"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.load"), name)
