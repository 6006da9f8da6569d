"""What a job is; ``from tony_core.job import job`` makes one in a Python program.

The names are imported when they are asked for: nodes, which have no lxml, import modules of this
package, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_core.job.load import job as job
    from tony_core.job.problems import JobError as JobError

_MODULES = {"job": "load", "JobError": "problems"}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
