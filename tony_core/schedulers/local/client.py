"""The client's side of the embedded scheduler: works from any shell, by the files of $TONY_HOME.

There is no daemon: an application's records are in its folder, and its master runs as long as the
lock is held. An application that has no end on record, whose lock is free and that no executor will
start again, has failed with its master, and is shown so. The last of its shims finalizes it, or the
next client that acts (:mod:`finalize`); one that looks writes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from tony_core.files.artifact import Artifact
from tony_core.job.spec import Job
from tony_core.schedulers import port
from tony_core.schedulers.local import attempts, finalize, home
from tony_core.schedulers.local.applications import (
    Application,
    current_status,
    describe_damage,
    read_status,
    write_status,
)
from tony_core.schedulers.local.home import AppFolder, Home
from tony_core.schedulers.port import AppState, AppStatus, LogRef, SchedulerError, Submission

START_S = 20.0  # for a master to start
KILL_MARGIN_S = 5.0  # beyond the job's own grace
POLL_S = 0.01
LOOPBACK = ("127.0.0.1", "::1", "localhost")  # where masters' pages are


class LocalScheduler(port.Scheduler):
    """The embedded scheduler of one user on this machine."""

    name = "local"

    def __init__(self, env: Optional[Mapping[str, str]] = None) -> None:
        self._env = dict(os.environ if env is None else env)
        relative = home.why_relative(self._env)
        if relative:
            raise port.BadEnvironment(relative)
        unusable = home.why_unusable(self._env)
        if unusable:
            raise port.LastingRefusal(unusable)
        self._home = Home(home.home_root(self._env))
        self._ended: Set[str] = set()  # by list_running(): no application begins again

    # ------------------------------------------------------------------ submitting

    def staging_root(self, job: Optional[Job] = None) -> str:
        return self._home.root

    def new_app_id(self, job: Job) -> str:
        return time.strftime("local_%Y%m%d%H%M%S_", time.gmtime()) + os.urandom(3).hex()

    def check(self, job: Job) -> List[str]:
        from tony_core.schedulers.local import checks  # with the allocation: not to list jobs

        return checks.find_problems(job)

    def warnings(self, job: Job) -> List[str]:
        from tony_core.schedulers.local import checks

        found = checks.find_warnings(job)
        exposed = home.list_open_folders(self._home.root)
        if exposed:
            found.append(f"open to other users, and made private now: {', '.join(exposed)}")
        return found

    def dry_run(self, app_id: str, job: Job, artifacts: Sequence[Artifact]) -> Submission:
        folder = app_folder(self._home, app_id)
        described = self._application(app_id, job, artifacts)
        app = described.to_json()
        return Submission(
            scheduler=self.name,
            job=job,
            artifacts=tuple(artifacts),
            details={
                "argv": attempts.master_argv(folder, app, 1),
                "env": attempts.master_env(folder, app),
                **self._containers_in_images(folder, described, job, artifacts),
                "folders": {
                    "application": folder.path,
                    "job": folder.job,
                    "master": folder.master,
                    "containers": folder.containers,
                    "logs": folder.logs,
                    "history": os.path.join(self._home.history, app_id),
                },
            },
        )

    def submit(self, app_id: str, submission: Submission, secret: bytes) -> None:
        problems = self.check(submission.job)
        if problems:
            raise SchedulerError("; ".join(problems))
        folder = app_folder(self._home, app_id)
        if os.path.exists(folder.app):
            raise SchedulerError(f"the application {app_id} exists already")
        app = self._application(app_id, submission.job, submission.artifacts)
        try:
            home.make_folder(self._home.root)
            home.close_to_others(self._home.root)
            if app.images is not None:
                app.images.prepare(self._home.root)
            home.make_folder(folder.job)
            if not os.path.exists(folder.secret):
                home.write_bytes(folder.secret, secret)
            write_status(folder, app.first_status())
            home.write_json(folder.app, app.to_json(), sync=True)
            limit = min(START_S, submission.job.master.startup_timeout_s)
            self._start_master(folder, app, limit)
        except BaseException as error:
            # Interrupted or failed: nothing of it is left.
            self._undo(folder)
            if isinstance(error, OSError):
                raise SchedulerError(f"{folder.path} cannot be written: {error}") from error
            raise
        finalize.finalize_all_dead(self._home)  # while the master starts

    def _containers_in_images(
        self, folder: AppFolder, app: Application, job: Job, artifacts: Sequence[Artifact]
    ) -> Dict[str, Any]:
        """The command of a first container of each role in an image."""
        if app.images is None:
            return {}
        return {
            "images": {
                role.name: app.images.example(folder, role, artifacts)
                for role in job.roles
                if app.images.has_image(role.name)
            }
        }

    def _application(self, app_id: str, job: Job, artifacts: Sequence[Artifact]) -> Application:
        named = job if job.user else job.replace(user=self._env.get("USER") or getpass.getuser())
        return Application.of(app_id, named, artifacts, self._env)

    def _start_master(self, folder: AppFolder, app: Application, limit: float) -> None:
        """Start the first master; returns when it has registered its process."""
        end = time.monotonic() + limit
        argv = attempts.runtime_argv(
            app.python, app.runtime, "local-successor", "--app-dir", folder.path
        )
        while True:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=attempts.master_env(folder, app.to_json()),
                start_new_session=True,  # Ctrl-C is for this process, which then ends the job
                timeout=START_S,
            )
            code = done.returncode
            if code != attempts.HELD or time.monotonic() >= end:
                break
            time.sleep(POLL_S)  # a reader of the status holds the lock for a moment
        if code != attempts.STARTED:
            output = done.stderr.decode("utf-8", "replace").strip()[-2000:]
            raise SchedulerError(
                f"the master could not be started ({' '.join(argv[:4])} ended with {code}):"
                f" {output}"
            )
        while time.monotonic() < end:
            if attempts.read(folder).process is not None:
                return
            if self._is_master_gone(folder) and attempts.read(folder).process is None:
                output = home.tail(folder.master_log(1, "stderr")) or "no output"
                raise SchedulerError(f"the master ended before it had registered: {output}")
            time.sleep(POLL_S / 2)
        output = home.tail(folder.master_log(1, "stderr")) or "no output"
        raise SchedulerError(
            f"the master did not come up in {limit:g} s (tony.am.startup-timeout, at most"
            f" {START_S:g} s here): {output}"
        )

    def _undo(self, folder: AppFolder) -> None:
        found = attempts.read(folder).process
        if found is not None:
            found.send(signal.SIGKILL)
        finalize.end_containers(folder)
        finalize.remove_reservations(folder)
        shutil.rmtree(folder.path, ignore_errors=True)

    # ------------------------------------------------------------------ status

    def status(self, app_id: str) -> AppStatus:
        return current_status(*find_application(self._home, app_id))

    def list(self) -> List[AppStatus]:
        found = []
        for app_id in self._home.app_ids():
            try:
                found.append(self.status(app_id))
            except port.NoSuchApplication:
                continue  # being staged, or collected meanwhile
        return sorted(found, key=lambda status: (-status.submitted, status.app_id))

    def list_running(self) -> List[AppStatus]:
        found = []
        there = [app_id for app_id in self._home.app_ids() if app_id not in self._ended]
        for app_id in there:
            try:
                status = self.status(app_id)
            except port.NoSuchApplication:
                continue
            if status.state.ended:
                self._ended.add(app_id)
            else:
                found.append(status)
        return sorted(found, key=lambda status: (-status.submitted, status.app_id))

    def owner_of(self, status: AppStatus) -> str:
        """This user, if the folder is his."""
        if not app_folder(self._home, status.app_id).is_own:
            return ""
        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return str(os.geteuid())

    def page_problem(self, status: AppStatus, url: str) -> str:
        from urllib.parse import urlsplit  # of services only

        try:
            parts = urlsplit(url)
            here = parts.scheme == "http" and parts.hostname in LOOPBACK
        except ValueError:
            here = False
        return "" if here else f"{url} is not the address of a page on this machine"

    # ------------------------------------------------------------------ ending it

    def owner_folder(self, app_id: str) -> str:
        folder, app = find_application(self._home, app_id)
        if not folder.is_own:
            raise SchedulerError(f"{folder.path} is a link or another user's")
        if not app.here:
            raise SchedulerError(f"{app_id} runs on {app.host}; only from there it can be entered")
        return folder.path

    def kill(self, app_id: str, reason: str) -> None:
        folder, app = find_application(self._home, app_id)
        if not folder.is_own:
            raise SchedulerError(f"{folder.path} is a link or another user's: not killed")
        finalize.finalize_dead(folder, app)
        if read_status(folder, app).state.ended:
            return
        if not app.here:
            raise SchedulerError(f"{app_id} runs on {app.host}; kill it from there")
        if not os.path.exists(folder.kill):
            by = self._env.get("USER") or getpass.getuser()
            home.write_json(folder.kill, {"reason": reason, "by": by, "at": time.time()})
        end = time.monotonic() + app.kill_grace_s + KILL_MARGIN_S
        signalled = None
        while time.monotonic() < end:
            handle = attempts.try_lock(folder)
            if handle is not None:
                self._finalize_killed(folder, app, handle, reason)
                return
            process = attempts.read(folder).process
            if process is not None and process != signalled and process.send(signal.SIGTERM):
                signalled = process
            time.sleep(POLL_S)
        handle = self._kill_master(folder)
        if handle is None:
            raise SchedulerError(
                f"{app_id} has a master that cannot be killed ({attempts.read(folder)})"
            )
        self._finalize_killed(folder, app, handle, f"{reason} (its master did not end by itself)")

    def _finalize_killed(
        self, folder: AppFolder, app: Application, handle: int, reason: str
    ) -> None:
        try:
            status = read_status(folder, app)
            if not status.state.ended:
                killed = status._replace(state=AppState.KILLED, diagnostics=reason)
                finalize.finalize(folder, app, killed)
        finally:
            os.close(handle)

    def _kill_master(self, folder: AppFolder) -> Optional[int]:
        """Kill the master; returns its lock, free with the last of its threads, or None."""
        process = attempts.read(folder).process
        if process is not None:
            process.send(signal.SIGKILL)
        end = time.monotonic() + finalize.FORCE_S
        handle = attempts.try_lock(folder)
        while handle is None and time.monotonic() < end:
            time.sleep(POLL_S)
            handle = attempts.try_lock(folder)
        return handle

    def _is_master_gone(self, folder: AppFolder) -> bool:
        handle = attempts.try_lock(folder)
        if handle is None:
            return False
        os.close(handle)
        return True

    # ------------------------------------------------------------------ for other readers

    @property
    def log_reader(self) -> LocalLogReader:
        return LocalLogReader(self._home)

    @property
    def cleaner(self) -> LocalCleaner:
        return LocalCleaner(self._home)

    def examine(
        self, job: Job, stage: Optional[Callable[[Job, str], Tuple[Artifact, ...]]] = None
    ) -> Iterator[port.Finding]:
        from tony_core.schedulers.local.doctor import examine

        return examine(self, self._home.root, job, self._env, stage)


class LocalLogReader(port.LogReader):
    """Reads the log folders of an application's containers and masters."""

    def __init__(self, root: Home) -> None:
        self._home = root

    def list_containers(self, app_id: str) -> List[Tuple[str, LogRef]]:
        folder, _ = find_application(self._home, app_id)
        found = []
        for container_id in folder.container_ids():
            data = home.read_json(folder.container(container_id).container)
            if data is not None and data.get("task"):
                ref = LogRef(container_id, str(data.get("node", "")), str(data.get("log_url", "")))
                found.append((str(data["task"]), ref))
        return found

    def list_logs(self, app_id: str, ref: LogRef) -> List[str]:
        return [
            name for name in home.list_names(self._logs(app_id, ref)) if home.is_safe_name(name)
        ]

    def read_log(
        self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
    ) -> bytes:
        if not home.is_safe_name(name):
            raise SchedulerError(f"{name!r} is not the name of a log")
        path = os.path.join(self._logs(app_id, ref), name)
        try:
            # The program may write into this folder: opening a pipe must not block, and reading
            # /dev/zero would never end.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                mode = os.fstat(handle).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise OSError(errno.EINVAL, "it is no plain file")
                return os.pread(handle, limit, offset)
            finally:
                os.close(handle)
        except (FileNotFoundError, IsADirectoryError):
            return b""
        except OSError as error:
            raise SchedulerError(f"{path} cannot be read: {error.strerror}") from error

    def log_size(self, app_id: str, ref: LogRef, name: str) -> Optional[int]:
        if not home.is_safe_name(name):
            raise SchedulerError(f"{name!r} is not the name of a log")
        try:
            found = os.lstat(os.path.join(self._logs(app_id, ref), name))
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def of_forgotten(self, app_id: str, owner: str) -> port.LogReader:
        raise SchedulerError(
            f"the logs of {app_id} are gone: there is no folder {self._home.app(app_id).path}"
            " (tony gc removes those of jobs that ended long ago)"
            if home.is_safe_name(app_id)
            else f"{app_id!r} is not the id of an application"
        )

    def _logs(self, app_id: str, ref: LogRef) -> str:
        """A container's log folder; the master's own for a reference to no container."""
        folder, _ = find_application(self._home, app_id)
        if not ref.container_id:
            return folder.master
        if not home.is_safe_name(ref.container_id):
            raise SchedulerError(f"{ref.container_id!r} is not the id of a container")
        return folder.container(ref.container_id).logs


class LocalCleaner(port.Cleaner):
    """Finalizes applications whose masters died, and removes the folders of ended ones."""

    def __init__(self, root: Home) -> None:
        self._home = root

    def remove_leftovers(self, status: AppStatus, job: Optional[Job] = None) -> bool:
        app = Application.read(self._home.app(status.app_id))
        if app is not None:
            with contextlib.suppress(OSError):  # a full disk: the next client tries again
                finalize.finalize_dead(self._home.app(status.app_id), app)
        return status.state.ended  # $TONY_HOME is one user's

    def collect_garbage(self, older_than_s: float, dry_run: bool = False) -> Iterator[str]:
        now = time.time()
        if not dry_run:
            finalize.finalize_all_dead(self._home)
        for app_id in self._home.app_ids():
            folder = self._home.app(app_id)
            app = Application.read(folder)
            if app is None:
                continue  # staged and never submitted: the staging's own collector
            if not folder.is_own:
                continue
            status = current_status(folder, app)
            if not status.state.ended or now - (status.finished or status.submitted) < older_than_s:
                continue
            if not dry_run:
                shutil.rmtree(folder.path, ignore_errors=True)
            yield f"application {app_id} ({status.name}, {status.state.value}): {folder.path}"

    def list_damaged(self) -> List[str]:
        found = (describe_damage(self._home.app(app_id)) for app_id in self._home.app_ids())
        return [line for line in found if line]


def app_folder(root: Home, app_id: str) -> AppFolder:
    """The folder of an application; NoSuchApplication for what cannot be an id."""
    if not home.is_safe_name(app_id):
        raise port.NoSuchApplication(f"{app_id!r} is not the id of an application")
    return root.app(app_id)


def find_application(root: Home, app_id: str) -> Tuple[AppFolder, Application]:
    """A submitted application and its folder; else NoSuchApplication."""
    folder = app_folder(root, app_id)
    app = Application.read(folder)
    if app is None:
        raise port.NoSuchApplication(f"there is no application {app_id} in {root.apps}")
    return folder, app
