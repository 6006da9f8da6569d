"""The client: submit, watch, attach, read logs, kill; for the command line and for programs.

The names below are imported when first used, so that a command pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_core.client.api import Client as Client
    from tony_core.client.api import Result as Result
    from tony_core.client.api import Run as Run
    from tony_core.client.api import run as run
    from tony_core.client.api import submit as submit
    from tony_core.client.exit_codes import ExitCode as ExitCode
    from tony_core.client.watch import Callbacks as Callbacks
    from tony_core.job.load import JobArguments as JobArguments
    from tony_core.view import JobView as JobView
    from tony_core.view import TaskView as TaskView

_WHERE = {
    "Callbacks": "tony_core.client.watch",
    "Client": "tony_core.client.api",
    "ExitCode": "tony_core.client.exit_codes",
    "JobArguments": "tony_core.job.load",
    "JobView": "tony_core.view",
    "Result": "tony_core.client.api",
    "Run": "tony_core.client.api",
    "TaskView": "tony_core.view",
    "run": "tony_core.client.api",
    "submit": "tony_core.client.api",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
