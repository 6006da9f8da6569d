"""What is written down about an application: what was submitted, and how it stands."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from tony_core.files.artifact import Artifact, Use, find
from tony_core.job.spec import Job, Limits, Local
from tony_core.jsontext import is_number
from tony_core.schedulers.local import home, localization, processes
from tony_core.schedulers.local.environment import passed
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.images import Images
from tony_core.schedulers.local.processes import Identity
from tony_core.schedulers.port import AppState, AppStatus, SchedulerError

DEFAULT_PYTHON = "python3"


@dataclass(frozen=True)
class Application:
    """``app.json``: what every later process needs to know without the job folder."""

    app_id: str
    name: str
    user: str
    queue: str
    type: str
    tags: Tuple[str, ...]
    submitted: float
    host: str
    boot: str
    submitter: Identity
    python: str  # what our own code runs on
    runtime: str  # where our own code stands
    environment: Mapping[str, str]
    max_attempts: int
    kill_grace_s: float
    local: Local
    images: Optional[Images] = None
    archives: Tuple[int, int] = (Limits().archive_mb, Limits().archive_members)
    uptime: Optional[float] = None  # the monotonic clock when it was submitted

    @classmethod
    def of(
        cls, app_id: str, job: Job, artifacts: Sequence[Artifact], env: Mapping[str, str]
    ) -> Application:
        """The application that this job becomes, submitted now by this process."""
        runtime = find(tuple(artifacts), Use.RUNTIME)
        if runtime is None:
            raise SchedulerError("our own code is not among what was staged for this job")
        path = localization.local_path(runtime.uri)
        if not path:
            raise SchedulerError(f"our own code has to be on this machine, not at {runtime.uri}")
        python = interpreter(job)
        if python is None:
            raise SchedulerError(f"tony.runtime.python: there is no program {job.runtime.python}")
        me = Identity.mine()
        return cls(
            app_id=app_id,
            name=job.name,
            user=job.user,
            queue=job.queue,
            type=job.type,
            tags=job.tags,
            submitted=time.time(),
            host=processes.host(),
            boot=me.boot,
            submitter=me,
            python=python,
            runtime=path,
            environment=passed(env),
            max_attempts=job.master.max_attempts,
            kill_grace_s=job.timeouts.kill_grace_s,
            local=job.local,
            images=Images.of(job, env),
            archives=(job.limits.archive_mb, job.limits.archive_members),
            uptime=time.monotonic(),
        )

    def to_json(self) -> Dict[str, Any]:
        """Plain data."""
        return {
            **self.__dict__,
            "tags": list(self.tags),
            "submitter": self.submitter.to_json(),
            "environment": dict(self.environment),
            "local": self.local._asdict(),
            "archives": list(self.archives),
            "images": None if self.images is None else self.images.to_json(),
        }

    @classmethod
    def read(cls, folder: AppFolder) -> Optional[Application]:
        """What is written in the folder; None when nothing was submitted there."""
        data = home.read_json(folder.app)
        if data is None:
            return None
        try:
            return cls._of_json(data, folder.app_id)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None  # a damaged file tells no more than none

    @classmethod
    def _of_json(cls, data: Mapping[str, Any], app_id: str) -> Application:
        submitter = Identity.from_json(data["submitter"])
        if submitter is None:
            raise ValueError("it names no submitter")
        texts = (data["name"], data["user"], data["queue"], data["type"], *data["tags"])
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a name or tag is no text")
        numbers = (data["submitted"], data["max_attempts"], data["kill_grace_s"])
        if not all(is_number(number, 1e15) for number in numbers):
            raise ValueError("a time, or a number of attempts, is no number")
        return cls(
            **{
                **data,
                "app_id": app_id,  # whatever it says
                "tags": tuple(data["tags"]),
                "submitter": submitter,
                "local": Local(**data["local"]),
                "images": Images.from_json(data.get("images")),
                **({"archives": tuple(data["archives"])} if "archives" in data else {}),
            }
        )

    @property
    def here(self) -> bool:
        """Whether it was started on this host, so that its processes can be asked."""
        return self.host == processes.host()

    @property
    def this_boot(self) -> bool:
        """Whether this host has not been restarted since."""
        return self.boot == processes.boot_id()

    @property
    def clock_offset(self) -> float:
        """What the monotonic clock lacks to seconds since the epoch.

        A machine's clock that was set back since the submission does not turn the job's back.
        """
        offset = time.time() - time.monotonic()
        if self.uptime is None or not (self.here and self.this_boot):
            return offset
        return max(offset, self.submitted - self.uptime)

    def now(self) -> float:
        """Seconds since the epoch, as the job counts them."""
        return time.monotonic() + self.clock_offset

    def first_status(self) -> AppStatus:
        """How it stands before its master has said anything."""
        return AppStatus(
            app_id=self.app_id,
            name=self.name,
            user=self.user,
            queue=self.queue,
            type=self.type,
            tags=self.tags,
            state=AppState.SUBMITTED,
            submitted=self.submitted,
        )


_NUMBERS = ("submitted", "started", "finished", "progress", "attempt")


def read_status(folder: AppFolder, app: Application) -> AppStatus:
    """The last word that was written on it."""
    data = home.read_json(folder.status)
    if data is None:
        return app.first_status()
    try:
        return status_of(data, folder.app_id)
    except (KeyError, TypeError, ValueError):
        return app.first_status()  # a damaged file tells no more than none


def status_of(data: Mapping[str, Any], app_id: str) -> AppStatus:
    """What :func:`write_status` wrote, for whichever id; an error for anything else."""
    known = {field.name for field in fields(AppStatus)}
    values = {name: value for name, value in data.items() if name in known}
    for name, value in values.items():
        if name in _NUMBERS:
            wrong = value is not None and not is_number(value, 1e15)
        else:
            texts = value if name == "tags" and isinstance(value, list) else [value]
            wrong = not all(isinstance(text, str) or text is None for text in texts)
        if wrong:
            raise ValueError(f"{name} is not what is written there")
    tags = tuple(data["tags"])
    return AppStatus(**{**values, "app_id": app_id, "state": AppState(data["state"]), "tags": tags})


def why_damaged(folder: AppFolder) -> str:
    """A line on a file of an application that is there and cannot be read; empty for none."""
    if Application.read(folder) is None:
        damaged = os.path.exists(folder.app)
        return f"{folder.app_id} is not shown: {folder.app} is damaged" if damaged else ""
    try:
        status_of(home.read_json(folder.status) or {}, folder.app_id)
    except (KeyError, TypeError, ValueError):
        if os.path.exists(folder.status):
            return f"{folder.app_id} is shown as submitted: {folder.status} is damaged"
    return ""


def write_status(folder: AppFolder, status: AppStatus) -> None:
    """Replace the last word; by whoever holds the master's lock."""
    home.write_json(
        folder.status,
        {**status.__dict__, "state": status.state.value, "tags": list(status.tags)},
        sync=status.state.ended,  # or a job that has succeeded is one that a restart has ended
    )


def interpreter(job: Job) -> Optional[str]:
    """What our own code runs on here: the client's own Python unless the job names one.

    The client's is known to be there and new enough; a machine's ``python3`` need not be.
    """
    named = job.runtime.python
    if named == DEFAULT_PYTHON and sys.executable:
        return sys.executable
    return shutil.which(named)
