"""The handle on a cluster: up, its addresses, what can be done to it, its applications' logs."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type
from urllib.parse import urlencode

from tests.cluster.hadoop.certificates import authority_of
from tests.cluster.hadoop.daemons import Daemons, start_supervisor
from tests.cluster.hadoop.features import complete, make_plan
from tests.cluster.hadoop.jars import Distribution, SandboxError, distribution
from tests.cluster.hadoop.kerberos import Kerberos
from tests.cluster.hadoop.name_nodes import NameNodes
from tests.cluster.hadoop.plan import Plan, Ports
from tests.cluster.hadoop.readiness import wait_ready
from tests.cluster.hadoop.security import ADMIN, EVERYONE, USERS
from tests.cluster.hadoop.site import Properties, read_site
from tests.cluster.hadoop.web import Caller, WebError, WebHdfs, call

UP_S = 120.0
"""A machine with nothing else to do needs a tenth of this."""

TOOL_S = 120.0
"""What a program of Hadoop gets, a MapReduce job included."""

ENDED = ("FINISHED", "FAILED", "KILLED")
"""The states of an application that has come to its end."""


class Hadoop(Daemons):
    """One cluster, running or not, in a folder."""

    def __init__(self, folder: Path, lifeline: Optional[int] = None) -> None:
        super().__init__(folder, lifeline)
        self.conf_dir = folder / "conf"
        self.version: str = self._cluster["version"]
        self.features: Tuple[str, ...] = tuple(self._cluster["features"])
        self.is_secure = "secure" in self.features
        self.kerberos = Kerberos(folder)
        self.authority = authority_of(folder) if "https" in self.features else None
        """Whose certificates the web servers have, as PEM."""
        starter: str = self._cluster["environment"]["USER"]
        self.user = USERS[0] if self.is_secure else starter
        """Whose jobs run here, unless a test says otherwise."""
        self.users = EVERYONE if self.is_secure else ()
        self.admin = self.caller(ADMIN if self.is_secure else starter)
        self.client_environment: Dict[str, str] = dict(self._cluster["client"])
        self.name_nodes = NameNodes(self)
        self._distribution = Distribution(
            self.version, Path(self._cluster["jars"]), Path(self._cluster["java_home"])
        )

    # ------------------------------------------------------------------ up and down

    @classmethod
    def up(
        cls,
        folder: Path,
        features: Sequence[str] = (),
        *,
        jars: Optional[Distribution] = None,
        detached: bool = False,
        limit: float = UP_S,
    ) -> Hadoop:
        """A new cluster in an empty folder, ready when this returns.

        It ends with this process, unless detached: then with ``down`` only.
        """
        wanted = complete(features)
        folder = folder.absolute()
        if re.search(r"[^\w./+-]", str(folder), re.ASCII):
            # Hadoop takes apart lists of folders, URIs and shell words that it is part of.
            raise SandboxError(f"a cluster's folder has letters, digits and ._+- only: {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
        was_empty = not any(folder.iterdir())
        ports = Ports()
        try:
            plan = make_plan(Plan(folder, jars or distribution(), ports, wanted))
            try:
                plan.write()
            except SandboxError:
                if was_empty:  # so that the next attempt finds it as this one did
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            lifeline = start_supervisor(folder, ports, detached)
        finally:
            ports.close()
        made = cls(folder, lifeline)
        try:
            made.wait_ready(limit)
            made._make_folders()
            made._make_labels()
            made._renew_tickets()
        except BaseException:
            made.down()
            raise
        return made

    def remove(self) -> None:
        """Down, and the folder away."""
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Hadoop:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.down()

    def wait_ready(self, limit: float = UP_S) -> None:
        """Until every daemon that runs has found the others, and HDFS can be written."""
        wait_ready(self, limit)

    # ------------------------------------------------------------------ addresses

    def site(self, name: str) -> Properties:
        """What a client reads: ``hadoop.site("yarn-site")["yarn.resourcemanager.address"]``."""
        return read_site(self.conf_dir / f"{name}.xml")

    @property
    def default_fs(self) -> str:
        return self.site("core-site")["fs.defaultFS"]

    @property
    def rm_address(self) -> str:
        """Of the active ResourceManager, for clients."""
        return self.rpc(self.active_rm())

    @property
    def scheduler_address(self) -> str:
        """Of the active ResourceManager, for application masters."""
        yarn = self.site("yarn-site")
        name = "yarn.resourcemanager.scheduler.address"
        return yarn.get(name) or yarn[f"{name}.{self.active_rm()}"]

    @property
    def rm_url(self) -> str:
        return self.url(self.active_rm())

    @property
    def webhdfs_url(self) -> str:
        return self.url(self.name_nodes.active() or "nn0")

    @property
    def hdfs(self) -> WebHdfs:
        """The file system, as its superuser."""
        return WebHdfs(self.webhdfs_url, self.admin)

    def hdfs_of(self, user: str) -> WebHdfs:
        """The file system as a user sees it."""
        return WebHdfs(self.webhdfs_url, self.caller(user))

    def url(self, daemon: str) -> str:
        """Of its web server."""
        scheme = "https" if self.authority else "http"
        return f"{scheme}://{self.web(daemon)}"

    def node_id(self, daemon: str) -> str:
        """HOST:PORT, by which YARN knows a node."""
        return self.rpc(daemon)

    @property
    def node_names(self) -> List[str]:
        """What asks call the nodes."""
        if "ports_in_names" in self.features:
            return [self.node_id(name) for name in self.names("nm")]
        return [self.node_id(name).rsplit(":", 1)[0] for name in self.names("nm")]

    def active_rm(self) -> str:
        """The daemon's name; the only one's without asking."""
        names = self.names("rm")
        if len(names) == 1:
            return names[0]
        for name in names:
            try:
                info = self._get(f"{self.url(name)}/ws/v1/cluster/info")
            except (OSError, WebError):
                continue
            if info and info["clusterInfo"]["haState"] == "ACTIVE":
                return name
        raise SandboxError("no ResourceManager is active")

    def nodes(self) -> List[Dict[str, Any]]:
        """The nodes as the ResourceManager sees them."""
        found = self._get(f"{self.rm_url}/ws/v1/cluster/nodes")["nodes"]
        return list((found or {}).get("node", ()))

    # ------------------------------------------------------------------ daemons

    def kill_nm(self, index: int = 0) -> None:
        """A node is lost, with everything on it."""
        self.kill(f"nm{index}")

    def restart_nm(self, index: int = 0) -> None:
        """Only the NodeManager; its containers live on with the feature nm_recovery."""
        self.call("stop", daemon=f"nm{index}", kill="nm_recovery" in self.features)
        self.start(f"nm{index}")
        self.wait_ready()

    def restart_rm(self) -> None:
        """All ResourceManagers, one after the other; back when the nodes are."""
        for name in self.names("rm"):
            self.stop(name)
            self.start(name)
        self.wait_ready()

    def kill_active_rm(self) -> str:
        """With rm_ha the other one takes over; gives the name of the killed one."""
        name = self.active_rm()
        self.kill(name)
        return name

    def stop_nn(self) -> None:
        """HDFS is down until ``start("nn0")``."""
        for name in self.names("nn"):
            self.stop(name)

    def safe_mode(self, on: bool) -> None:
        """HDFS can only be read while it is on."""
        self.tool(_DFS_ADMIN, "-safemode", "enter" if on else "leave")

    def fail_over_hdfs(self) -> str:
        """With nn_ha: the other NameNode becomes the active one; gives its name."""
        return self.name_nodes.fail_over()

    def heal(self) -> None:
        """As it was when it came up, but for the files in HDFS: daemons up, nothing running, and
        tickets as new as then."""
        for name, state in self.daemons().items():
            if state["exit"] is not None or state["pid"] is None:
                self.start(name)
        if "nn0" in self.daemons() and self.name_nodes.are_in_safe_mode():
            self.safe_mode(False)
        self.wait_ready()
        self._renew_tickets()
        for one in self.applications("NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"):
            self.kill_application(one["id"])

    def _renew_tickets(self) -> None:
        for user in self.users:
            self.kerberos.cache_of(user).unlink(missing_ok=True)
        if self.is_secure:
            self.kinit(self.user)

    def _get(self, url: str) -> Any:
        return call("GET", url, timeout=5, by=self.admin)

    def _make_folders(self) -> None:
        for one in self._cluster["hdfs_folders"]:
            self.hdfs.make_folder(one["path"])
            self.hdfs.give(one["path"], one["owner"], one["group"], one["permission"])

    def _make_labels(self) -> None:
        labels: Dict[str, bool] = self._cluster["labels"]
        if not labels:
            return
        root = f"{self.rm_url}/ws/v1/cluster"
        listed = [{"name": name, "exclusivity": exclusive} for name, exclusive in labels.items()]
        url = f"{root}/add-node-labels?{urlencode(self.admin.name())}"
        call("POST", url, {"nodeLabelInfo": listed}, by=self.admin)
        for name, label in self._cluster["node_labels"].items():
            query = urlencode({**self.admin.name(), "labels": label})
            url = f"{root}/nodes/{self.node_id(name)}/replace-labels?{query}"
            call("POST", url, by=self.admin)

    # ------------------------------------------------------------------ applications

    def applications(self, states: str = "") -> List[Dict[str, Any]]:
        """All of them, or those in the states (separated by commas)."""
        # By name: with ACLs, an unknown user is shown half of it.
        query = urlencode({**self.admin.name(), **({"states": states} if states else {})})
        found = call("GET", f"{self.rm_url}/ws/v1/cluster/apps?{query}", by=self.admin)["apps"]
        return list((found or {}).get("app", ()))

    def application(self, app_id: str) -> Dict[str, Any]:
        """What the ResourceManager's page says about one."""
        query = urlencode(self.admin.name())
        url = f"{self.rm_url}/ws/v1/cluster/apps/{app_id}?{query}"
        return dict(call("GET", url, by=self.admin)["app"])

    def submit(self, user: str = "", **context: Any) -> str:
        """By REST, the fields as there (``application-name``, ``am-container-spec``, ...);
        the id and the type are made here. For a look at the cluster, not for TonY's jobs."""
        by = self.caller(user or self.user)
        root = f"{self.rm_url}/ws/v1/cluster/apps"
        who = f"?{urlencode(by.name())}"
        app_id = str(call("POST", f"{root}/new-application{who}", by=by)["application-id"])
        named = {name.replace("_", "-"): value for name, value in context.items()}
        message = {"application-id": app_id, "application-type": "TRY", **named}
        call("POST", root + who, message, by=by)
        return app_id

    def wait_for(
        self, app_id: str, states: Sequence[str] = ENDED, limit: float = 60
    ) -> Dict[str, Any]:
        """The application once it is in one of the states."""
        deadline = time.monotonic() + limit
        while True:
            app = self.application(app_id)
            if app["state"] in states:
                return app
            if time.monotonic() >= deadline or app["state"] in ENDED:
                raise SandboxError(
                    f"{app_id} is {app['state']} and not {' or '.join(states)} after {limit} s: "
                    f"{app.get('diagnostics', '')}"
                )
            time.sleep(0.1)

    def kill_application(self, app_id: str) -> None:
        """As by the ResourceManager's page; it has ended when this returns."""
        if "simple_web" in self.features:  # everyone there is dr.who, who may not kill
            self.tool(_APPLICATIONS, "application", "-kill", app_id)
        else:
            query = urlencode(self.admin.name())
            url = f"{self.rm_url}/ws/v1/cluster/apps/{app_id}/state?{query}"
            call("PUT", url, {"state": "KILLED"}, by=self.admin)
        self.wait_for(app_id, ENDED)

    def application_logs(self, app_id: str) -> str:
        """What all of its containers wrote, from the nodes' folders or else from HDFS."""
        found = []
        for node in self.names("nm"):
            for path in sorted((self.folder / "data" / node / "logs" / app_id).glob("*/*")):
                if path.is_file() and path.name not in _NOT_LOGS:
                    title = f"--- {path.parent.name} {path.name} on {node}"
                    found.append(f"{title}\n{path.read_text(errors='replace').rstrip()}")
        if not found and "log_aggregation" in self.features:
            found.append(self.tool(_LOGS, "-applicationId", app_id, check=False))
        return "\n".join(found)

    # ------------------------------------------------------------------ programs, logs

    def tool(
        self, main: str, *arguments: str, answer: str = "", check: bool = True, user: str = ""
    ) -> str:
        """A Java program of Hadoop as a client, by default an administrator's; what it wrote."""
        flags = [f"-Djdk.net.hosts.file={self.folder / 'hosts'}", *self._cluster["flags"]]
        start = self._distribution.java([self.conf_dir], main, heap_mb=256, flags=flags)
        what = f"{main} {' '.join(arguments)}"
        try:
            done = subprocess.run(
                [*start, *arguments],
                env={**self._cluster["environment"], **self._login(user or self.admin.user)},
                cwd=self.folder,
                input=answer,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TOOL_S,
            )
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode(errors="replace")
            raise SandboxError(f"{what} took more than {TOOL_S} s:\n{output}") from None
        if check and done.returncode:
            raise SandboxError(f"{what}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def run_jar(self, jar: Path, *arguments: str) -> str:
        """As ``hadoop jar`` does."""
        return self.tool("org.apache.hadoop.util.RunJar", str(jar), *arguments, user=self.user)

    # ------------------------------------------------------------------ users

    def caller(self, user: str) -> Caller:
        """A user for calls by HTTP."""
        login = (lambda: self._login(user)) if self.is_secure else None
        return Caller(user, login, self.authority)

    def kinit(self, user: str, lifetime: str = "", renewable: str = "") -> Path:
        """A new ticket in the user's ticket cache, which it gives: ``kinit("ann", "90s")``."""
        return self.kerberos.kinit(user, lifetime, renewable)

    def environment_of(self, user: str) -> Dict[str, str]:
        """What a client of a user has: HADOOP_CONF_DIR, and KRB5_CONFIG and KRB5CCNAME, with a
        ticket; on an open cluster HADOOP_USER_NAME."""
        if self.is_secure and not self.kerberos.cache_of(user).exists():
            self.kinit(user)
        who = self.kerberos.environment_of(user) if self.is_secure else {"HADOOP_USER_NAME": user}
        return {**self.client_environment, **who}

    def keytab_of(self, user: str) -> Path:
        """A user's keys: the principal's name is the user's."""
        return self.kerberos.keytab_of(user)

    def hdfs_token(self, user: str, renewer: str = "yarn") -> str:
        """A delegation token of a user's for HDFS, as texts hold it, by WebHDFS: the one thing
        that the containers of ``submit`` need for files and for their logs."""
        port = self.rpc(self.name_nodes.active()).rsplit(":", 1)[1]
        host = "localhost" if "host_tokens" in self.features else "127.0.0.1"
        service = self.site("hdfs-site").get("dfs.nameservices")
        query = urlencode(
            {
                "op": "GETDELEGATIONTOKEN",
                "renewer": renewer,
                "kind": "HDFS_DELEGATION_TOKEN",
                "service": f"ha-hdfs:{service}" if service else f"{host}:{port}",
            }
        )
        answer = call("GET", f"{self.webhdfs_url}/webhdfs/v1/?{query}", by=self.caller(user))
        return str(answer["Token"]["urlString"])

    def _login(self, user: str) -> Dict[str, str]:
        """The environment of a program that this handle runs as a user."""
        if not self.is_secure:
            return {"HADOOP_USER_NAME": user}
        # Not the user's cache: what becomes of that one is the tests' matter.
        cache = self.kerberos.kinit(user, cache=self.kerberos.cache_of(f"{user}.handle"))
        return {**self.kerberos.environment_of(user), "KRB5CCNAME": str(cache)}

    def jar(self, name: str) -> Path:
        """``hadoop.jar("hadoop-mapreduce-examples")``"""
        return self._distribution.jar(name)


_NOT_LOGS = ("launch_container.sh", "directory.info")
"""Files that YARN itself puts beside the logs."""

_DFS_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_APPLICATIONS = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
_LOGS = "org.apache.hadoop.yarn.client.cli.LogsCLI"
