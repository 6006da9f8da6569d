"""One real job that is going to fail, and what must hold whatever it failed of."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable, List

from tests.master.test_master_real import Submitted, a_job
from tony_core.bundle.local.store import Store
from tony_core.job.spec import Job, MasterSpec, Resources, Role
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.local.home import Home
from tony_core.schedulers.local.ledger import Ledger
from tony_core.schedulers.port import AppState

PATIENCE_S = 120.0

ONCE = MasterSpec(user_retries=0, infrastructure_retries=0)


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait for something that a busy machine may take long for."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.02)


def belonging_to(app_id: str) -> List[int]:
    """The processes that have an application's name in their environment, of any user."""
    found: List[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                mine = app_id.encode() in (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mine and state not in "ZX":
                found.append(int(entry.name))
    return found


def one_role(command: str, count: int = 1, **changes: Any) -> Job:
    """Workers alone, that are not tried again."""
    return a_job(command, count, **{"master": ONCE, **changes})


def with_role(name: str, command: str, other: str, **more: Any) -> Job:
    """One worker, and one task of a role that something happens to."""
    job = one_role(other)
    role = Role(name, 1, Resources(memory_mb=200), command, **more)
    return job.replace(roles=(*job.roles, role))


class Wreck(Submitted):
    """A job on its way to its end."""

    @classmethod
    def of(cls, home: Path, app_id: str) -> Wreck:
        """A job that another process submitted."""
        made = cls.__new__(cls)
        made.scheduler = LocalScheduler()
        made.app_id = app_id
        made.home = Home(str(home))
        made.folder = made.home.app(app_id)
        return made

    def ends(self, state: AppState, *words: str) -> str:
        """Waits for this end, with these words, and nothing left; returns diagnostics and story."""
        until(lambda: self.status().state.ended, "the end" + self.words())
        status = self.status()
        text = f"{status.diagnostics}\n{self.story()}"
        assert status.state is state, text + self.words()
        for word in words:
            assert word in text, f"{word!r} is not in:\n{text}{self.words()}"
        self.leaves_nothing()
        return text

    def story(self) -> str:
        """What history has of it."""
        return "\n".join(str(event["text"]) for event in self.history().events)

    def leaves_nothing(self) -> None:
        """No process, share of the machine or lease, nothing of the job's own folder, no secret."""
        until(lambda: not belonging_to(self.app_id), "every process to go")
        book = Ledger(self.home.ledger).change()
        held = [item for item in book.held.values() if item.app == self.app_id]
        assert not held and self.app_id not in book.queue, book
        self.clears_away()

    def clears_away(self) -> None:
        """What is not for the time after its end goes, with or without a command that asks."""
        lease = os.path.join(Store(self.home.root).leases, f"{self.app_id}.json")
        gone: List[str] = [self.folder.job, self.folder.secret, lease]
        for name in self.folder.container_ids():
            container = self.folder.container(name)
            gone += [container.work, container.secret, container.launch]
        until(lambda: not any(map(os.path.exists, gone)), f"the removal of {gone}")


def script(folder: Path, text: str) -> Path:
    """A Python program of the test's."""
    path = folder / "program.py"
    path.write_text(text)
    return path
