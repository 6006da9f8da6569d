"""What applications of YARN leave behind, and who removes it."""

from __future__ import annotations

from typing import Callable, Optional

from tony_core.job.spec import Job
from tony_core.schedulers import port
from tony_core.schedulers.port import AppStatus


class YarnCleaner(port.Cleaner):
    """Removes job folders. The garbage collection of the staging removes all else on HDFS."""

    def __init__(self, user: str, remove_job_folder: Callable[[str, Optional[Job]], None]) -> None:
        self._user = user
        self._remove_job_folder = remove_job_folder

    def remove_leftovers(self, status: AppStatus, job: Optional[Job] = None) -> bool:
        if status.user != self._user or not status.state.ended:
            return False
        self._remove_job_folder(status.app_id, job)
        return True
