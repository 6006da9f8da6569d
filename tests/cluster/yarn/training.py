"""A job whose programs count until they are stopped: every disturbance shows."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Callable, Dict, List

from tests.cluster.yarn.jobs import Running, Tony

TRAINS = """
import os, sys, time
step, session = 0, os.environ["SESSION_ID"]
while not os.path.exists(sys.argv[1] + "/over"):
    with open(f"{sys.argv[1]}/{os.environ['JOB_NAME']}-{os.environ['TASK_INDEX']}", "a") as file:
        file.write(f"{session} {os.getpid()} {step}\\n")
    step += 1
    time.sleep(0.05)
"""


class Training:
    """Workers (two) that count until they are stopped."""

    def __init__(self, tony: Tony, workers: int = 2, **conf: Any) -> None:
        self.workers = workers
        self.folder = tony.folder / "counts"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        src = tony.folder / "src"
        src.mkdir()
        (src / "train.py").write_text(TRAINS)
        settings = {
            "tony.application.framework": "mpi",
            "tony.worker.instances": workers,
            "tony.worker.memory": "64m",
            **conf,
        }
        self.job: Running = tony.submit(
            *("--src_dir", str(src), "--executes", f"python3 train.py {self.folder}"),
            conf=settings,
        )

    def lines(self) -> Dict[str, List[List[str]]]:
        """What each worker has counted: session, pid, step."""
        return {
            path.name: [
                line.split() for line in path.read_text().splitlines(True) if line[-1] == "\n"
            ]
            for path in self.folder.glob("worker-*")
        }

    def counts(self, session: str = "0") -> bool:
        """All have begun in that session."""
        lines = self.lines()
        return len(lines) == self.workers and all(
            each and each[-1][0] == session for each in lines.values()
        )

    def grows(self) -> Callable[[], bool]:
        """Whether each has counted on since now."""
        before = {name: len(lines) for name, lines in self.lines().items()}
        return lambda: all(len(lines) > before[name] + 5 for name, lines in self.lines().items())

    def known_as_running(self) -> bool:
        """Whether each has counted so long (3 s) that its node has reported it to YARN.

        When a master dies, YARN keeps the containers that it knows to run, and ends those that it
        granted and has not heard of since.
        """
        return self.counts() and all(len(lines) > 60 for lines in self.lines().values())

    def undisturbed(self) -> bool:
        """Whether each counted without a gap, in one process."""
        return all(
            len({line[1] for line in lines}) == 1
            and [int(line[2]) for line in lines] == list(range(len(lines)))
            for lines in self.lines().values()
        )

    def lose_container(self, name: str) -> None:
        """Kill what YARN started for a worker; the other's goes on."""
        pid = int(self.lines()[name][-1][1])
        container = os.getpgid(pid)
        assert container not in (pid, os.getpgid(0))
        os.kill(container, signal.SIGKILL)

    def over(self) -> None:
        """They may end."""
        (self.folder / "over").touch()


def masters(app_id: str) -> List[int]:
    """The pids of an application's masters."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                folder = os.readlink(entry / "cwd")
            except OSError:
                continue
            is_master = b"master" in words and b"yarn-start" in words and b"-c" not in words
            if is_master and app_id in folder:
                found.append(int(entry.name))
    return found


def running(tony: Tony, app_id: str) -> int:
    tasks = tony.json("status", app_id)["tasks"]
    return sum(task["state"] == "running" for task in tasks)
