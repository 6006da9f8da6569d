"""A whole Airflow, each component a process of its own that can be killed and started again.

As ``airflow standalone`` has them: API server, scheduler with the LocalExecutor, DAG processor
and triggerer, with SQLite. They are kept by the supervisor that keeps Hadoop's daemons
(``tests/cluster/hadoop/supervisor.py``), so that nothing of them outlives the test process,
whatever ends it; workers and triggers are found by the folder that they work in.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import requests

from tests.cluster.airflow.rest import Rest
from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.daemons import Daemons, start_supervisor
from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.plan import LOOPBACK, Ports

UP_S = 240.0
"""A machine with nothing else to do needs a tenth of this."""

COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer"],
}
"""Of each its command."""

HEALTH = {
    "metadatabase": None,
    "scheduler": "scheduler",
    "dag_processor": "dag-processor",
    "triggerer": "triggerer",
}
"""What the page about health calls them."""

LOST_S = 30
"""Without a sign of life for so long, a worker counts as lost; a triggerer as well."""

SETTINGS = {
    "CORE__EXECUTOR": "LocalExecutor",
    "CORE__PARALLELISM": 6,
    "CORE__MAX_ACTIVE_TASKS_PER_DAG": 16,
    "CORE__LOAD_EXAMPLES": False,
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
    "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": True,
    "CORE__TEST_CONNECTION": "Enabled",
    "API__HOST": LOOPBACK,
    "API__WORKERS": 1,
    "WORKERS__MIN_HEARTBEAT_INTERVAL": 2,
    "WORKERS__EXECUTION_API_TIMEOUT": 30,
    "WORKERS__MAX_FAILED_HEARTBEATS": 10,
    "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": 1,
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": LOST_S,
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": 2,
    # Of a scheduler that is dead for so long, running tasks are ended and run again.
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": LOST_S,
    "SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": 1,
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": 5,
    "TRIGGERER__JOB_HEARTBEAT_SEC": 2,
    "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": LOST_S,
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 3600,
    "DAG_PROCESSOR__PARSING_PROCESSES": 1,
    "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": 200,
    "CORE__DAGBAG_IMPORT_TIMEOUT": 200,
    "USAGE_DATA_COLLECTION__ENABLED": False,
}
"""Quicker than they come, so that what a minute shows is seen in seconds."""


class Airflow(Daemons):
    """One, running or not, in a folder; ``rest`` asks it."""

    def __init__(self, folder: Path, lifeline: Optional[int] = None) -> None:
        super().__init__(folder, lifeline)
        self.environment: Dict[str, str] = self._cluster["environment"]
        self.home = Path(self.environment["AIRFLOW_HOME"])
        self.url = f"http://{self.web('api-server')}"
        self.rest = Rest(self.url)

    @classmethod
    def up(
        cls, folder: Path, dags: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> Airflow:
        """A new one in an empty folder with these DAG files, healthy when this returns."""
        folder = folder.absolute()
        home = folder / "data" / "home"
        (home / "dags").mkdir(parents=True)
        for name, source in dags.items():
            (home / "dags" / name).write_text(source)
        ports = Ports()
        try:
            environ = {**_environment(folder, home, ports), **(environment or {})}
            _write(folder, environ)
            _run(folder, environ, "db", "migrate")
            lifeline = start_supervisor(folder, ports, detached=False)
        finally:
            ports.close()
        made = cls(folder, lifeline)
        try:
            made.wait_healthy()
        except BaseException:
            made.down()
            raise
        return made

    def remove(self) -> None:
        """Down, and the folder away."""
        self.rest.close()
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def heal(self) -> None:
        """All components up, whatever a test before has left."""
        for name, state in self.daemons().items():
            if state["exit"] is not None or state["pid"] is None:
                self.start(name)
        self.wait_healthy()

    def wait_healthy(self, limit: float = UP_S) -> None:
        """Until every component is there, and the DAG files have been read."""
        deadline = time.monotonic() + limit
        while True:
            dead = [n for n, state in self.daemons().items() if state["exit"] is not None]
            if dead:
                tails = "\n".join(self.log_tail(name) for name in dead)
                raise SandboxError(f"{', '.join(dead)} ended by itself:\n{tails}")
            reason = self._not_healthy()
            if not reason:
                return
            if time.monotonic() >= deadline:
                raise SandboxError(f"Airflow is not healthy after {limit} s: {reason}\n{self}")
            time.sleep(0.2)

    def _not_healthy(self) -> str:
        """Why not; empty when it is."""
        states = self.daemons()
        try:
            health = self.rest.get("monitor/health")
            for name, daemon in HEALTH.items():
                one = health[name]
                if one["status"] != "healthy":
                    return f"{name}: {one}"
                if daemon and states[daemon]["pid"] and _told(one, name) < states[daemon]["since"]:
                    return f"{name} has not told of itself since its start"
            wanted = {path.stem for path in (self.home / "dags").glob("*.py")}
            read = {Path(str(one["fileloc"])).stem for one in self.rest.get("dags")["dags"]}
            broken = self.rest.get("importErrors")["import_errors"]
            if broken:
                raise SandboxError("\n".join(str(one["stack_trace"]) for one in broken))
            return f"not read yet: {sorted(wanted - read)}" if wanted - read else ""
        except (requests.RequestException, AssertionError, KeyError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    def __str__(self) -> str:
        """The ends of all logs."""
        return "\n".join(self.log_tail(name) for name in COMPONENTS)

    # ------------------------------------------------------------------ disturbances

    def power_cut(self, component: str) -> None:
        """It ends at once, with all that it had started."""
        folder = str(self.folder / "data" / component)
        self.ask("stop", daemon=component, kill=True, folder=folder)

    def crash(self, component: str) -> None:
        """Its first process ends at once; what it had started finds out by itself."""
        self.ask("stop", daemon=component, kill=True)

    def kill_worker(self, task_instance: str, task_only: bool = False) -> None:
        """What runs a task ends at once: the task's own process, or the executor's as well."""
        worker = self._titled(f"airflow worker -- LocalExecutor: {task_instance}")
        task = self._titled(f"airflow worker -- {task_instance}")
        assert len(worker) == 1 and len(task) == 1, (worker, task)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # nobody lives to tell of the other's end
            for pid in task if task_only else worker + task:
                os.kill(pid, number)

    def works_on(self, task_instance: str) -> bool:
        """Whether a task's own process is there."""
        return bool(self._titled(f"airflow worker -- {task_instance}"))

    def _titled(self, title: str) -> List[int]:
        """The pids of this Airflow's processes of that name."""
        found = []
        for pid in supervisor.processes_in(self.folder / "data"):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if line.rstrip("\0 ") == title:
                found.append(pid)
        return found

    def command(self, *words: str) -> str:
        """One of ``airflow``'s own, to its end; what it printed."""
        return _run(self.folder, self.environment, *words)


def _environment(folder: Path, home: Path, ports: Ports) -> Dict[str, str]:
    web = ports.take()
    keep = ("PATH", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME")
    environ = {name: os.environ[name] for name in keep if name in os.environ}
    settings: Dict[str, Any] = {
        **SETTINGS,
        "CORE__DAGS_FOLDER": home / "dags",
        "CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{web}/execution/",
        "CORE__FERNET_KEY": urlsafe_b64encode(os.urandom(32)).decode(),
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout=60",
        "API__PORT": web,
        "API__BASE_URL": f"http://{LOOPBACK}:{web}",
        "API__SECRET_KEY": secrets.token_hex(16),
        "API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "LOGGING__WORKER_LOG_SERVER_PORT": ports.take(),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": ports.take(),
    }
    environ |= {f"AIRFLOW__{name}": str(value) for name, value in settings.items()}
    return {
        **environ,
        "AIRFLOW_HOME": str(home),
        "HOME": str(home),
        "TONY_HOME": str(home / "tony"),
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": "*",
    }


def _write(folder: Path, environment: Mapping[str, str]) -> None:
    """What the supervisor reads."""
    web = f"{LOOPBACK}:{environment['AIRFLOW__API__PORT']}"
    daemons = {}
    (folder / "logs").mkdir()
    for name, words in COMPONENTS.items():
        (folder / "data" / name).mkdir()
        daemons[name] = {
            "argv": [sys.executable, "-m", "airflow", *words],
            "log": str(folder / "logs" / f"{name}.log"),
            "web": web,
        }
    text = json.dumps({"daemons": daemons, "environment": environment})
    path = folder / "cluster.json"
    path.touch(0o600)
    path.write_text(text)


def _run(folder: Path, environment: Mapping[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *words],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=UP_S,
    )
    if done.returncode:
        raise SandboxError(f"airflow {' '.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def _told(one: Mapping[str, Any], name: str) -> float:
    """When a component last told of itself."""
    text = str(one[f"latest_{name}_heartbeat"])
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
