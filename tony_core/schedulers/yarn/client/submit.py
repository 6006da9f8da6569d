"""What a submit sends beside the request, and how it hears whether that was accepted."""

from __future__ import annotations

import time
from typing import Callable, List, Sequence

from tony_core.files import registry
from tony_core.files.artifact import Artifact
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.launch import APPLICATION, LocalFile
from tony_core.hadoop.yarn.records import AppReport
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job
from tony_core.job.xmlfile import job_to_xml
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn import job_credentials, site
from tony_core.schedulers.yarn.client import refusals
from tony_core.schedulers.yarn.client.localfiles import Visibility
from tony_core.schedulers.yarn.client.submission import AppRequest
from tony_core.schedulers.yarn.job_credentials import MasterParcel

ACCEPT_S = 30.0  # from the submission until the ResourceManager has said yes or no
FIRST_LOOK_S = 0.005
LONGEST_LOOK_S = 0.25

_NOT_YET = ("NEW", "NEW_SAVING", "SUBMITTED")


def parcel_of(
    conf: SiteConfiguration,
    user: str,
    root: str,
    job: Job,
    artifacts: Sequence[Artifact],
    visible: Visibility,
) -> MasterParcel:
    """All that the master must know."""
    return MasterParcel(
        job=job_to_json(job.replace(user=user)),
        artifacts=[{**item.to_json(), "visibility": visible.of(item)} for item in artifacts],
        config=job_to_xml(job, masked=True),
        site=site.for_master(conf),
        user=user,
        root=root,
        history_root=job.history.location or f"{root}/history",
    )


def named(app_id: str, root: str, told: MasterParcel) -> List[str]:
    """What a dry run says of it: names and sizes."""
    packed, file = job_credentials.for_master(b"", told)
    names = [f"{job_credentials.SECRET} (32 bytes)"]
    names += [f"{name} ({len(data)} bytes)" for name, data in packed.items() if data]
    if file is not None:
        names.append(f"{job_credentials.FILE}, a file of {len(file)} bytes in {root}/apps/{app_id}")
    return names


def with_file(request: AppRequest, root: str, data: bytes) -> AppRequest:
    """A job that is too long for the credentials, as a file of the owner's alone."""
    folder = f"{root}/apps/{request.app_id}"
    location = f"{folder}/{job_credentials.FILE}"
    files = registry.filesystem(location)
    files.mkdir(folder, 0o700)
    files.put(location, data, 0o600)
    found = files.stat(location)
    file = LocalFile(location, found.size, found.mtime_ms, visibility=APPLICATION)
    return request.with_file(job_credentials.FILE, file)


def wait_accepted(report: Callable[[ApplicationId], AppReport], app_id: ApplicationId) -> None:
    """Until the ResourceManager has taken it; SchedulerError with its reason if it does not."""
    end = time.monotonic() + ACCEPT_S
    pause = FIRST_LOOK_S
    while True:
        found = report(app_id)
        if found.state not in _NOT_YET:
            break
        if time.monotonic() >= end:
            raise SchedulerError(
                f"the cluster has not accepted {app_id} within {ACCEPT_S:g} s (it is"
                f" {found.state}); it was killed again"
            )
        time.sleep(pause)
        pause = min(LONGEST_LOOK_S, pause * 1.5)
    # YARN numbers the attempt of an application that never had one -1.
    if found.state == "FAILED" and (found.attempt is None or found.attempt.number < 1):
        raise refusals.refused(str(app_id), found.diagnostics)
