"""What a job is.

The names below come when first asked for: the master imports ``tony_core.job.spec`` and
``tony_core.job.jsonfile`` on nodes where lxml is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_core.job.jsonfile import job_from_json as job_from_json
    from tony_core.job.jsonfile import job_to_json as job_to_json
    from tony_core.job.limits import check_limits as check_limits
    from tony_core.job.load import JobArguments as JobArguments
    from tony_core.job.load import Loaded as Loaded
    from tony_core.job.load import job as job
    from tony_core.job.load import job_from_xml as job_from_xml
    from tony_core.job.load import load_job as load_job
    from tony_core.job.problems import JobError as JobError
    from tony_core.job.problems import Problem as Problem
    from tony_core.job.problems import Severity as Severity
    from tony_core.job.spec import Job as Job
    from tony_core.job.spec import Role as Role
    from tony_core.job.spec import Tracking as Tracking
    from tony_core.job.validate import missing_sources as missing_sources
    from tony_core.job.xmlfile import job_to_xml as job_to_xml

_WHERE = {
    "Job": "spec",
    "JobArguments": "load",
    "JobError": "problems",
    "Loaded": "load",
    "Problem": "problems",
    "Role": "spec",
    "Severity": "problems",
    "Tracking": "spec",
    "check_limits": "limits",
    "job": "load",
    "job_from_json": "jsonfile",
    "job_from_xml": "load",
    "job_to_json": "jsonfile",
    "job_to_xml": "xmlfile",
    "load_job": "load",
    "missing_sources": "validate",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
