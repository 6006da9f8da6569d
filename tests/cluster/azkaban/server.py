"""The handle on an Azkaban server: web server, executor and database in one process, in a folder.

    conf/, sql/, web/, plugins/   what the server reads; all below data/azkaban, its home
    data/azkaban/executions/      what its jobs work in
    data/tony/                    the TonY home of its jobs
    logs/azkaban.log              what it says
    cluster.json                  its command line, for the supervisor

It is kept by the supervisor of ``tests/cluster/hadoop``: it ends with its maker unless detached,
and at the end nothing is left of the jobs that it started, their detached masters included.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Type

from dags.examples.azkaban.upload import Server
from tests.cluster.azkaban import schema
from tests.cluster.azkaban.jars import ServerJars, server_jars
from tests.cluster.hadoop.daemons import Daemons, start_supervisor
from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.plan import LOOPBACK, Ports

UP_S = 120.0
"""A machine with nothing else to do needs a twentieth of this."""

USER = "azkaban"
PASSWORD = "azkaban"
"""Of the one who may do everything, on a server that only this machine can reach."""

NAME = "azkaban"

_PAGES = Path(__file__).with_name("pages")

_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
log4j.logger.velocity=WARN
"""

_USERS = f"""\
<azkaban-users>
  <user username="{USER}" password="{PASSWORD}" roles="admin"/>
  <role name="admin" permissions="ADMIN"/>
</azkaban-users>
"""

EVERYWHERE = "0.0.0.0"


class Azkaban(Daemons):
    """One server, running or not, in a folder."""

    def __init__(self, folder: Path, lifeline: Optional[int] = None) -> None:
        if not (folder / "cluster.json").exists():
            raise SandboxError(f"there is no Azkaban server in {folder}")
        super().__init__(folder, lifeline)
        self.home = folder / "data" / NAME
        self.tony_home = folder / "data" / "tony"

    # ------------------------------------------------------------------ up and down

    @classmethod
    def up(
        cls,
        folder: Path,
        install: Callable[[Azkaban], None] = lambda server: None,
        *,
        jars: Optional[ServerJars] = None,
        environment: Optional[Mapping[str, str]] = None,
        users: Sequence[str] = (),
        classpath: Sequence[str] = (),
        flags: Sequence[str] = (),
        detached: bool = False,
    ) -> Azkaban:
        """A new server in an empty folder, ready when this returns.

        ``install`` puts job types into its folder before the server reads them. The server ends
        with this process, unless detached: then with ``down`` only. ``users`` may make projects
        of their own; the password of each is the name. ``classpath`` comes before the server's.
        """
        folder = folder.absolute()
        if re.search(r"[^\w./+-]", str(folder), re.ASCII):
            raise SandboxError(f"a server's folder has letters, digits and ._+- only: {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
        ports = Ports()
        try:
            found = jars or server_jars()
            command = found.command(classpath, flags)
            _write(folder, found, ports, environment or {}, command)
            _write_users(folder / "data" / NAME, users)
            install(cls(folder))
            lifeline = start_supervisor(folder, ports, detached)
        finally:
            ports.close()
        made = cls(folder, lifeline)
        try:
            made.wait_ready()
        except BaseException:
            made.down()
            raise
        return made

    def remove(self) -> None:
        """Down, and the folder away."""
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Azkaban:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.remove()

    def wait_ready(self, limit: float = UP_S) -> None:
        """Until web server and executor answer."""
        deadline = time.monotonic() + limit
        while True:
            state = self.daemons()[NAME]
            if state["exit"] is not None:
                raise SandboxError(f"the server ended by itself:\n{self.log_tail(NAME)}")
            reason = self._not_ready()
            if not reason:
                return
            if time.monotonic() >= deadline:
                raise SandboxError(
                    f"the server is not ready after {limit} s: {reason}\n{self.log_tail(NAME)}"
                )
            time.sleep(0.05)

    def _not_ready(self) -> str:
        try:
            with urllib.request.urlopen(self.url, timeout=5) as page:
                page.read()
            answer = self.executor("ping")
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return "" if answer.get("status") == "alive" else f"its executor says {answer}"

    # ------------------------------------------------------------------ asking

    @property
    def url(self) -> str:
        """Of its pages and its API."""
        return f"http://{self.web(NAME)}"

    @property
    def plugins(self) -> Path:
        """The folder of job types."""
        return self.home / "plugins" / "jobtypes"

    def client(self, user: str = "") -> Server:
        """Logged in, as the administrator or as a user."""
        return Server(self.url, user or USER, user or PASSWORD)

    def executor(self, action: str) -> Dict[str, Any]:
        """What the web server asks its executor, and administrators by hand."""
        url = f"http://{self.rpc(NAME)}/executor?action={action}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found: Dict[str, Any] = json.loads(answer.read())
        return found

    def restart(self) -> None:
        """As an administrator does after an installation; its jobs run on meanwhile."""
        self.stop(NAME)
        self.start(NAME)
        self.wait_ready()

    def running_pid(self) -> int:
        """Of the server's process."""
        pid = self.daemons()[NAME]["pid"]
        assert pid is not None, "the server is stopped"
        return int(pid)


def _write_users(home: Path, users: Sequence[str]) -> None:
    lines = [f'  <user username="{one}" password="{one}" roles="none"/>\n' for one in users]
    lines += ['  <role name="none" permissions=""/>\n'] if users else []
    text = _USERS.replace("</azkaban-users>", "".join(lines) + "</azkaban-users>")
    (home / "conf" / "azkaban-users.xml").write_text(text)


def _write(
    folder: Path,
    jars: ServerJars,
    ports: Ports,
    environment: Mapping[str, str],
    command: Sequence[str],
) -> None:
    """Everything that the server finds when it starts."""
    home = folder / "data" / NAME
    web, executor = ports.take(EVERYWHERE), ports.take(EVERYWHERE)
    schema.write(home / "sql")
    (home / "conf").mkdir()
    for name in ("executions", "projects", "temp", "plugins/jobtypes"):
        (home / name).mkdir(parents=True)
    _write_pages(home / "web", jars)
    settings = {
        "azkaban.name": "Sandbox",
        "azkaban.label": "TonY in Python",
        "azkaban.color": "#FF3601",
        "azkaban.default.servlet.path": "/index",
        "web.resource.dir": "web/",
        "default.timezone.id": "UTC",
        "user.manager.class": "azkaban.user.XmlUserManager",
        "user.manager.xml.file": "conf/azkaban-users.xml",
        "executor.global.properties": "conf/global.properties",
        "azkaban.project.dir": "projects",
        "azkaban.execution.dir": "executions",
        "azkaban.temp.dir": "temp",
        "azkaban.jobtype.plugin.dir": "plugins/jobtypes",
        "database.type": "h2",
        "h2.path": "database/azkaban",
        "h2.create.tables": "true",
        "database.sql.scripts.dir": "sql",
        "database.check.version": "true",
        "database.auto.update.tables": "true",
        "jetty.use.ssl": "false",
        "jetty.hostname": LOOPBACK,
        "jetty.maxThreads": "25",
        "jetty.port": str(web),
        "executor.port": str(executor),
        "executor.maxThreads": "50",
        "executor.flow.threads": "30",
    }
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    (home / "conf" / "azkaban.properties").write_text(text)
    (home / "conf" / "global.properties").write_text("")
    (home / "conf" / "log4j.properties").write_text(_LOG4J)
    (folder / "data" / "tony").mkdir()
    (folder / "logs").mkdir()
    description = {
        "environment": {**_environment(folder, jars), **environment},
        "daemons": {
            NAME: {
                "argv": [
                    *command[:1],
                    f"-Dlog4j.configuration=file:{home / 'conf' / 'log4j.properties'}",
                    f"-Djava.io.tmpdir={home / 'temp'}",
                    *command[1:],
                ],
                "log": str(folder / "logs" / f"{NAME}.log"),
                "host": LOOPBACK,
                "web": f"{LOOPBACK}:{web}",
                "rpc": f"{LOOPBACK}:{executor}",
            }
        },
    }
    (folder / "cluster.json").write_text(json.dumps(description, indent=1))


def _write_pages(web: Path, jars: ServerJars) -> None:
    """Scripts and style sheets: our own, small, where the pages of the server look for theirs,
    which are not in its jar."""
    shutil.copytree(_PAGES, web)
    (found,) = jars.lib.glob("bootstrap-*.jar")
    with zipfile.ZipFile(found) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/css/bootstrap.css"))
        (web / "css" / "bootstrap.css").write_bytes(archive.read(name))


def _environment(folder: Path, jars: ServerJars) -> Dict[str, str]:
    """As a service has it: nothing of the shell that starts it but where programs are."""
    kept = {name: os.environ[name] for name in ("HOME", "TZ", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "USER": getpass.getuser(),
        "LANG": "C.UTF-8",
        "JAVA_HOME": str(jars.java_home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TONY_HOME": str(folder / "data" / "tony"),
    }
