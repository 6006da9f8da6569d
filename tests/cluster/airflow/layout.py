"""What an Airflow consists of: on one machine for one person, or as sites have it.

``local`` is ``airflow standalone`` in parts: SQLite and the LocalExecutor. ``with_celery`` is the
other: PostgreSQL, Redis, a worker of Celery and two triggerers. Its servers are Debian's, run by
the supervisor in folders of their own, on loopback ports that the system gave, with passwords of
their own; no configuration of the machine is read or written, and none of its services started.
PostgreSQL refuses to run as root, and has another user then.
"""

from __future__ import annotations

import configparser
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.plan import LOOPBACK, Ports

CHECKOUT = Path(__file__).resolve().parents[3]
PARTS = (".", "executor", "plugins/airflow", "program")
"""Where our packages are, for a Python that they are not installed for."""

POSTGRES_USER = "postgres"
"""Whom root runs the database as; Debian's package makes this user."""

DATABASE = "airflow"
SERVER_S = 60.0

COMPONENTS: Mapping[str, Sequence[str]] = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer"],
}
"""Of each its command."""


@dataclass
class Layout:
    """What is started, by whom, with which settings beside those that all have."""

    python: Path = Path(sys.executable)
    components: Mapping[str, Sequence[str]] = field(default_factory=lambda: COMPONENTS)
    variables: Mapping[str, str] = field(default_factory=dict)
    """``NAME=value`` for a component alone."""
    settings: Dict[str, Any] = field(default_factory=dict)
    environment: Dict[str, str] = field(default_factory=dict)
    servers: Dict[str, List[str]] = field(default_factory=dict)
    """Of each its command line; they are up before any component is."""
    folders: List[Path] = field(default_factory=list)
    """What is outside of the Airflow's folder, and goes with it."""


def check_installed() -> None:
    """SandboxError where this environment is older than what Airflow is to find in it.

    An editable installation follows the checkout's modules, and not its entry points.
    """
    declared = configparser.ConfigParser()
    declared.read(CHECKOUT / "setup.cfg")
    for line in declared["options.entry_points"]["airflow.plugins"].split("\n"):
        name = line.partition("=")[0].strip()
        if name and not entry_points(group="airflow.plugins", name=name):
            raise SandboxError(
                f"the plugin {name} of setup.cfg is not installed in {sys.prefix}: bin/test makes"
                " the environment anew"
            )


def local(home: Path) -> Layout:
    """SQLite and the LocalExecutor.

    Airflow's API server writes its audit log on its event loop. When a request in another thread
    of it has written and not committed, which that does by the event loop, the two wait for each
    other, and every other component for both, until SQLite's patience is over. So the API server
    has little of it, and the others more.
    """
    database = f"sqlite:///{home}/airflow.db?timeout="
    name = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
    return Layout(
        settings={"CORE__EXECUTOR": "LocalExecutor", "DATABASE__SQL_ALCHEMY_CONN": f"{database}60"},
        variables={"api-server": f"{name}={database}5"},
    )


def with_celery(python: Path, folder: Path, ports: Ports) -> Layout:
    """PostgreSQL, Redis, one worker of Celery, two triggerers; ``python`` has what they need."""
    made = Layout(python)
    made.components = {
        **COMPONENTS,
        "triggerer2": ["triggerer", "--skip-serve-logs"],
        "worker": ["celery", "worker", "--concurrency", "6", "--skip-serve-logs"],
    }
    about = folder / "about"
    _install(about)
    paths = [about, *(CHECKOUT / part for part in PARTS)]
    made.environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "C_FORCE_ROOT": "1"}
    database = _postgres(made, folder, ports.take())
    made.settings = {
        "CORE__EXECUTOR": "CeleryExecutor",
        "DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}",
        "CELERY__BROKER_URL": _redis(made, folder, ports.take()),
        "CELERY__RESULT_BACKEND": f"db+postgresql+psycopg2://{database}",
    }
    return made


def _install(about: Path) -> None:
    """What pip has written of our distribution: by it Airflow finds the provider."""
    ours = about / "tony_py.dist-info"
    ours.mkdir(parents=True)
    found = distribution("tony-py")
    # Where the checkout was installed as it is, setuptools left a folder with the older name.
    metadata = found.read_text("METADATA") or found.read_text("PKG-INFO")
    for name, text in (
        ("METADATA", metadata),
        ("entry_points.txt", found.read_text("entry_points.txt")),
    ):
        assert text, f"tony-py is not installed: no {name}; bin/test installs it"
        (ours / name).write_text(text)


def _redis(made: Layout, folder: Path, port: int) -> str:
    """A broker that keeps nothing; its address."""
    password = secrets.token_hex(16)
    program = shutil.which("redis-server")
    if program is None:
        raise SandboxError("redis-server is missing; Debian: apt-get install redis-server")
    path = folder / "redis.conf"
    path.touch(0o600)
    path.write_text(
        f'bind {LOOPBACK}\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\n'
    )
    made.servers["redis"] = [program, str(path)]
    return f"redis://:{password}@{LOOPBACK}:{port}/0"


def _postgres(made: Layout, folder: Path, port: int) -> str:
    """A database server without sockets in shared folders; user, password, address, database."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        raise SandboxError("PostgreSQL is missing; Debian: apt-get install postgresql")
    home = programs[-1].parent
    password = secrets.token_hex(16)
    # A folder of its own: those of pytest are closed to other users.
    data = Path(tempfile.mkdtemp(prefix="tony-postgres-"))
    made.folders.append(data)
    (data / "password").write_text(password)
    become: List[str] = []
    if os.geteuid() == 0:
        shutil.chown(data, POSTGRES_USER)
        shutil.chown(data / "password", POSTGRES_USER)
        become = [
            "setpriv",
            f"--reuid={POSTGRES_USER}",
            f"--regid={POSTGRES_USER}",
            "--init-groups",
        ]
    done = subprocess.run(
        [
            *(*become, str(home / "initdb"), "--pgdata", str(data / "data"), "--no-sync"),
            *("--username", DATABASE, "--pwfile", str(data / "password")),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"),
        ],
        cwd=data,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SERVER_S,
    )
    if done.returncode:
        raise SandboxError(f"initdb: exit code {done.returncode}\n{done.stdout}")
    made.servers["postgres"] = [
        *("env", "-C", str(data), *become, str(home / "postgres"), "-D", str(data / "data")),
        *("-h", LOOPBACK, "-p", str(port), "-k", "", "-c", "fsync=off"),
        *("-c", "dynamic_shared_memory_type=mmap"),
    ]
    return f"{DATABASE}:{password}@{LOOPBACK}:{port}/postgres"
