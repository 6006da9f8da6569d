"""The records of an application: what was submitted (``app.json``), and its status.

A job whose master died has no end on record. :func:`current_status` shows the end that
:func:`tony_core.schedulers.local.finalize.finalize` will write.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import time
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.files.artifact import Artifact, Use, find
from tony_core.job.spec import Job, Limits, Local
from tony_core.jsontext import is_number
from tony_core.schedulers.local import attempts, home, processes
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.images import Images
from tony_core.schedulers.local.processes import ProcessIdentity
from tony_core.schedulers.port import AppState, AppStatus, SchedulerError

DEFAULT_PYTHON = "python3"

#: What a job gets of the environment of the shell that submits it: what finds programs and
#: libraries (so an active virtual environment is used), proxies, and the clusters that this machine
#: is set up for. All else (tokens, keys) stays; a job gets it by ``--shell_env`` or
#: ``--container_env``, as on a cluster.
PASSED = frozenset(
    """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR
    LD_LIBRARY_PATH VIRTUAL_ENV CONDA_PREFIX
    JAVA_HOME HADOOP_HOME HADOOP_CONF_DIR YARN_CONF_DIR HADOOP_COMMON_HOME HADOOP_HDFS_HOME
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY
    XDG_CACHE_HOME XDG_RUNTIME_DIR
    """.split()
)


class Application(NamedTuple):
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
    submitter: ProcessIdentity
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
        path = home.path_of_uri(runtime.uri)
        if not path:
            raise SchedulerError(f"our own code has to be on this machine, not at {runtime.uri}")
        python = find_interpreter(job)
        if python is None:
            raise SchedulerError(f"tony.runtime.python: there is no program {job.runtime.python}")
        me = ProcessIdentity.mine()
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
            environment=pass_environment(env),
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
            **self._asdict(),
            "tags": list(self.tags),
            "submitter": self.submitter.to_json(),
            "environment": dict(self.environment),
            "local": self.local._asdict(),
            "archives": list(self.archives),
            "images": None if self.images is None else self.images.to_json(),
        }

    @classmethod
    def read(cls, folder: AppFolder) -> Optional[Application]:
        """Read the application of that folder; None when nothing was submitted there."""
        data = home.read_json(folder.app)
        if data is None:
            return None
        try:
            return cls._of_json(data, folder.app_id)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None  # a damaged file counts as none

    @classmethod
    def _of_json(cls, data: Mapping[str, Any], app_id: str) -> Application:
        submitter = ProcessIdentity.from_json(data["submitter"])
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
                "app_id": app_id,  # the folder decides, not the file
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
        """The offset from the monotonic clock to seconds since the epoch.

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
        """The status before the master has reported anything."""
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
    """The status that was written last."""
    data = home.read_json(folder.status)
    if data is None:
        return app.first_status()
    try:
        return parse_status(data, folder.app_id)
    except (KeyError, TypeError, ValueError):
        return app.first_status()  # a damaged file counts as none


def current_status(folder: AppFolder, app: Application) -> AppStatus:
    """The status now; a job that no master will go on with has failed. Writes nothing."""
    status = read_status(folder, app)
    if status.state.ended or not app.here:
        return status
    try:
        handle = attempts.try_lock(folder, shared=True)
    except FileNotFoundError:
        return masterless_status(folder, app)
    if handle is None:
        return read_status(folder, app)
    try:
        return masterless_status(folder, app)
    finally:
        os.close(handle)


def masterless_status(folder: AppFolder, app: Application) -> AppStatus:
    """The :func:`current_status` of a job without a master; only while the lock is held."""
    status = read_status(folder, app)  # the last master may just have ended
    why = None if status.state.ended else why_dead(folder, app)
    if why is None:
        return status
    return status._replace(
        state=AppState.FAILED,
        diagnostics=why,
        trouble="",
        finished=_last_trace(folder, status),
        page_url=None,
        tracking_url=None,
    )


def why_dead(folder: AppFolder, app: Application) -> Optional[str]:
    """Why no master will go on with it; None if one may. Only while the lock is held."""
    if not app.this_boot:
        return "the machine was restarted while it ran"
    attempt = attempts.read(folder).attempt
    if attempt == 0:
        if app.submitter.alive():
            return None
        return "its client died before the master was started"
    if attempt < app.max_attempts and attempts.running_containers(folder):
        return None  # their executors start the next master
    text = home.tail(folder.master_log(attempt, "stderr"), lines=10)
    words = f"the master died (attempt {attempt} of {app.max_attempts})"
    return words + (f"\nits last output:\n{text}" if text else "")


def _last_trace(folder: AppFolder, status: AppStatus) -> float:
    """When it last wrote a file: its master, or a container its log or end. Equal at every look.

    History is such a file too, where it is kept in this home.
    """
    containers = [folder.container(one) for one in folder.container_ids()]
    paths = [one.exit for one in containers]
    places = [folder.path, folder.master, os.path.join(folder.home.history, folder.app_id)]
    for place in (*places, *(one.logs for one in containers)):
        paths += [os.path.join(place, name) for name in home.list_names(place)]
    newest = status.started or status.submitted
    for path in paths:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            if stat.S_ISREG(found.st_mode):
                newest = max(newest, found.st_mtime)
    return round(newest, 3)


def parse_status(data: Mapping[str, Any], app_id: str) -> AppStatus:
    """Read what :func:`write_status` wrote; raises for anything else."""
    known = set(AppStatus._fields)
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


def describe_damage(folder: AppFolder) -> str:
    """A line about a file of the application that cannot be read; empty for none."""
    if Application.read(folder) is None:
        damaged = os.path.exists(folder.app)
        return f"{folder.app_id} is not shown: {folder.app} is damaged" if damaged else ""
    try:
        parse_status(home.read_json(folder.status) or {}, folder.app_id)
    except (KeyError, TypeError, ValueError):
        if os.path.exists(folder.status):
            return f"{folder.app_id} is shown as submitted: {folder.status} is damaged"
    return ""


def write_status(folder: AppFolder, status: AppStatus) -> None:
    """Replace the status; only with the master's lock held."""
    if status.state.ended:
        status = status._replace(trouble="")
    home.write_json(
        folder.status,
        {**status._asdict(), "state": status.state.value, "tags": list(status.tags)},
        sync=status.state.ended,  # else a restart could turn a success into a failure
    )


def find_interpreter(job: Job) -> Optional[str]:
    """The Python for our own code here: the client's own, unless the job names one.

    The client's is known to be new enough; a machine's ``python3`` need not be.
    """
    named = job.runtime.python
    if named == DEFAULT_PYTHON and sys.executable:
        return sys.executable
    return shutil.which(named)


def pass_environment(env: Mapping[str, str]) -> Dict[str, str]:
    """The part of the client's environment that a job gets; a PATH in any case."""
    found = {name: value for name, value in env.items() if name in PASSED or name.startswith("LC_")}
    found.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    return found
