"""A whole Airflow, each component a process of its own that can be killed and started again.

Which they are, and what they need beside them, is a layout (``layout.py``). They are kept by the
supervisor that keeps Hadoop's daemons (``tests/cluster/hadoop/supervisor.py``), so that nothing of
them outlives the test process, whatever ends it; workers and triggers are found by the folder that
they work in.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from base64 import urlsafe_b64encode
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional

import requests

from tests.cluster.airflow.layout import Layout, check_installed, local, with_celery
from tests.cluster.airflow.rest import Rest
from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.daemons import DOWN_S, Daemons, start_supervisor
from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.plan import LOOPBACK, Ports

UP_S = 240.0
"""A machine with nothing else to do needs a tenth of this."""

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
        cls,
        folder: Path,
        dags: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        celery: Path | None = None,
    ) -> Airflow:
        """A new one in an empty folder with these DAG files, healthy when this returns; with the
        CeleryExecutor where a Python is given that has it."""
        check_installed()
        folder = folder.absolute()
        home = folder / "data" / "home"
        (home / "dags").mkdir(parents=True)
        for name, source in dags.items():
            (home / "dags" / name).write_text(source)
        ports = Ports()
        try:
            layout = with_celery(celery, folder, ports) if celery else local(home)
            environ = {**_environment(folder, home, ports, layout), **(environment or {})}
            _write(folder, environ, layout)
            lifeline = start_supervisor(folder, ports, detached=False)
        finally:
            ports.close()
        made = cls(folder, lifeline)
        try:
            if layout.servers:
                made.command("db", "check", "--retry", "60", "--retry-delay", "1")
            made.command("db", "migrate")
            for name in layout.components:
                made.start(name)
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

    def down(self) -> None:
        """Every process; PostgreSQL first, in order: killed it leaves shared memory behind."""
        if "postgres" in self._cluster["daemons"]:
            try:
                self.call("signal", daemon="postgres", signal=int(signal.SIGINT))
                self._gone("postgres")
            except SandboxError:
                pass  # nothing runs any more
        super().down()
        for folder in self._cluster["outside"]:
            shutil.rmtree(folder, ignore_errors=True)

    def _gone(self, daemon: str) -> None:
        deadline = time.monotonic() + DOWN_S
        while self.daemons()[daemon]["exit"] is None and time.monotonic() < deadline:
            time.sleep(0.1)

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
                if (
                    daemon
                    and states[daemon]["pid"]
                    and _last_heartbeat(one, name) < states[daemon]["since"]
                ):
                    return f"{name} has sent no heartbeat since its start"
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
        return "\n".join(self.log_tail(name) for name in self.daemons())

    # ------------------------------------------------------------------ disturbances

    def power_cut(self, component: str) -> None:
        """It ends at once, with all that it had started."""
        folder = str(self.folder / "data" / component)
        self.call("stop", daemon=component, kill=True, folder=folder)

    def crash(self, component: str) -> None:
        """Its first process ends at once; what it had started finds out by itself."""
        self.call("stop", daemon=component, kill=True)

    def kill_worker(self, task_instance: str, task_only: bool = False) -> None:
        """What runs a task ends at once: the task's own process, or the executor's as well."""
        found = self._at_work(task_instance, task_only)
        assert len(found) == (1 if task_only else 2), found
        _kill(found)

    def kill_workers(self, task_instances: Iterable[str], task_only: bool = False) -> None:
        """The same of several tasks at one moment, of which some may have no process."""
        _kill([pid for one in task_instances for pid in self._at_work(one, task_only)])

    def _at_work(self, task_instance: str, task_only: bool) -> List[int]:
        found = self._titled(f"airflow worker -- {task_instance}")
        if not task_only:
            found += self._titled(f"airflow worker -- LocalExecutor: {task_instance}")
        return found

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
        python = self._cluster["daemons"]["scheduler"]["argv"][0]
        done = subprocess.run(
            [python, "-m", "airflow", *words],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=UP_S,
        )
        if done.returncode:
            message = f"airflow {' '.join(words)}: exit code {done.returncode}\n{done.stdout}"
            raise SandboxError(message)
        return done.stdout


def _kill(pids: List[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):  # no process can report another's end
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def _environment(folder: Path, home: Path, ports: Ports, layout: Layout) -> Dict[str, str]:
    web = ports.take()
    keep = ("PATH", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME")
    environ = {name: os.environ[name] for name in keep if name in os.environ}
    settings: Dict[str, Any] = {
        **SETTINGS,
        "CORE__DAGS_FOLDER": home / "dags",
        "CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{web}/execution/",
        "CORE__FERNET_KEY": urlsafe_b64encode(os.urandom(32)).decode(),
        "API__PORT": web,
        "API__BASE_URL": f"http://{LOOPBACK}:{web}",
        "API__SECRET_KEY": secrets.token_hex(16),
        "API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "LOGGING__WORKER_LOG_SERVER_PORT": ports.take(),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": ports.take(),
        **layout.settings,
    }
    environ |= {f"AIRFLOW__{name}": str(value) for name, value in settings.items()}
    return {
        **environ,
        **layout.environment,
        "AIRFLOW_HOME": str(home),
        "HOME": str(home),
        "TONY_HOME": str(home / "tony"),
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": "*",
    }


def _write(folder: Path, environment: Mapping[str, str], layout: Layout) -> None:
    """What the supervisor reads."""
    web = f"{LOOPBACK}:{environment['AIRFLOW__API__PORT']}"
    daemons = {}
    (folder / "logs").mkdir()
    commands = {name: (words, False) for name, words in layout.servers.items()}
    for name, words in layout.components.items():
        own = ["env", layout.variables[name]] if name in layout.variables else []
        commands[name] = ([*own, str(layout.python), "-m", "airflow", *words], True)
    for name, (argv, later) in commands.items():
        (folder / "data" / name).mkdir()
        log = str(folder / "logs" / f"{name}.log")
        daemons[name] = {"argv": argv, "log": log, "web": web, "later": later}
    text = json.dumps(
        {
            "daemons": daemons,
            "environment": environment,
            "outside": [str(path) for path in layout.folders],
        }
    )
    path = folder / "cluster.json"
    path.touch(0o600)
    path.write_text(text)


def _last_heartbeat(one: Mapping[str, Any], name: str) -> float:
    """When a component last sent a heartbeat."""
    text = str(one[f"latest_{name}_heartbeat"])
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
