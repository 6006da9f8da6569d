"""The embedded scheduler as the contract suite and its own tests use it."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any, Dict, List

from tests.schedulers.contract import SECRET, Harness, Master, harness_job, until
from tests.schedulers.standin import make_runtime
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.job.spec import Job, Local
from tony_core.schedulers.local import attempts, home
from tony_core.schedulers.local.applications import Application, write_status
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.local.home import AppFolder, Home
from tony_core.schedulers.local.pool import open_master
from tony_core.schedulers.local.processes import ProcessIdentity
from tony_core.schedulers.port import AppState

MOST_MB = 3000


class LocalHarness(Harness):
    """Applications in a home of the test's own; every pool and process of it ends with it."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.scheduler = LocalScheduler()
        self.home = Home(str(root))
        self.runtime = make_runtime(scratch / "runtime")
        self._masters: Dict[Master, AppFolder] = {}

    def job(self, **changes: Any) -> Job:
        """The job of every application here, of this or that difference."""
        return harness_job().replace(**{"local": Local(memory_mb=MOST_MB), **changes})

    def master(self, name: str = "first", **changes: Any) -> Master:
        job = self.job(name=name, user="tester", **changes)
        app_id = self.scheduler.new_app_id(job)
        folder = self.home.app(app_id)
        app = Application.of(app_id, job, self.artifacts(), os.environ)
        home.make_folder(folder.job)
        home.write_bytes(folder.secret, SECRET)
        home.write_json(folder.app, app.to_json())
        write_status(folder, app.first_status())
        return self._open(folder, 1)

    def next_master(self, master: Master) -> Master:
        folder = self._masters[master]
        return self._open(folder, attempts.read(folder).attempt + 1)

    def folder(self, master: Master) -> AppFolder:
        """Its application's folder."""
        return self._masters[master]

    def _open(self, folder: AppFolder, attempt: int) -> Master:
        handle = attempts.try_lock(folder)
        assert handle is not None
        context, pool = open_master(
            argparse.Namespace(app_dir=folder.path, attempt=str(attempt), lock_fd=str(handle))
        )
        assert context.secret == SECRET
        assert context.attempt == attempt
        master = Master(pool)
        self._masters[master] = folder
        return master.start()

    def most_memory_mb(self) -> int:
        return MOST_MB

    def artifacts(self) -> List[Artifact]:
        runtime = str(self.runtime)
        return [Artifact("tony-runtime", Use.RUNTIME, Kind.FOLDER, runtime, runtime)]

    def submit(self, **instructions: Any) -> str:
        job = self.job(**instructions.pop("job", {}))
        attempts = instructions.pop("attempts", job.master.max_attempts)
        job = job.replace(master=job.master._replace(max_attempts=attempts))
        app_id = self.scheduler.new_app_id(job)
        folder = self.home.app(app_id)
        home.make_folder(folder.job)
        Path(folder.job, "instructions.json").write_text(json.dumps(instructions))
        self.scheduler.submit(app_id, self.scheduler.dry_run(app_id, job, self.artifacts()), SECRET)
        return app_id

    def kill_master(self, app_id: str) -> None:
        process = attempts.read(self.home.app(app_id)).process
        assert process is not None
        assert process.send(signal.SIGKILL)
        until(lambda: self._free(app_id), "the master's death")

    def _free(self, app_id: str) -> bool:
        """Whether its lock is: it goes with the last of the master's threads."""
        handle = attempts.try_lock(self.home.app(app_id))
        if handle is not None:
            os.close(handle)
        return handle is not None

    def close(self) -> None:
        """End what the test left to its fixture."""
        for master in self._masters:
            if not master.closed:
                master.pool.finish(AppState.KILLED, "the test is over")
                master.close()
        ours = {folder.app_id for folder in self._masters.values()}
        for status in self.scheduler.list():
            self.scheduler.cleaner.remove_leftovers(status)
            if not status.state.ended:
                if status.app_id in ours:
                    # The last shim may be finalizing it. While that holds the lock, a kill
                    # signals the master, and the master is this process.
                    until(lambda: self._free(status.app_id), "the end of its last shim")  # noqa: B023
                self.scheduler.kill(status.app_id, "the test is over")
        self._reap()

    def _reap(self) -> None:
        """The shims are children of the master, which is this process here and lives on."""
        for folder in self._masters.values():
            for container_id in folder.container_ids():
                shim = ProcessIdentity.from_json(
                    home.read_json(folder.container(container_id).shim)
                )
                try:
                    if shim is not None:
                        os.waitpid(shim.pid, 0)
                except ChildProcessError:
                    pass  # its pool has waited for it
