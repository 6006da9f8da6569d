"""The handle on a cluster: up, its addresses, what can be done to it, its applications' logs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

from tests.cluster.hadoop.daemons import Daemons, start_supervisor
from tests.cluster.hadoop.features import complete, make_plan
from tests.cluster.hadoop.jars import Distribution, SandboxError, distribution
from tests.cluster.hadoop.plan import Plan, Ports
from tests.cluster.hadoop.site import Properties, read_site
from tests.cluster.hadoop.web import WebError, WebHdfs, bean, call

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
        self.user: str = self._cluster["environment"]["USER"]
        self.client_environment: Dict[str, str] = dict(self._cluster["client"])
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
        ports = Ports()
        try:
            plan = make_plan(Plan(folder, jars or distribution(), ports, wanted))
            plan.write()
            lifeline = start_supervisor(folder, ports, detached)
        finally:
            ports.close()
        made = cls(folder, lifeline)
        try:
            made.wait_ready(limit)
            made._make_labels()
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
        deadline = time.monotonic() + limit
        reason = "nothing was asked yet"
        while True:
            states = self.daemons()
            dead = [n for n, state in states.items() if state["exit"] is not None]
            if dead:
                tails = "\n".join(self.log_tail(name) for name in dead)
                raise SandboxError(f"{', '.join(dead)} ended by itself:\n{tails}")
            reason = self._not_ready(states)
            if not reason:
                return
            if time.monotonic() >= deadline:
                tails = "\n".join(self.log_tail(name, 8) for name in states)
                raise SandboxError(f"the cluster is not ready after {limit} s: {reason}\n{tails}")
            time.sleep(0.1)

    def _not_ready(self, states: Dict[str, Dict[str, Any]]) -> str:
        """Why it is not ready; empty when it is."""
        running = {name for name, state in states.items() if state["pid"] is not None}
        try:
            if "dn0" in running and any(n in running for n in self.names("nn")):
                if len(self.names("nn")) > 1 and not self._active_name_node():
                    self._activate(next(n for n in self.names("nn") if n in running))
                name_node = bean(self.web(self._active_name_node()), _FS_STATE, 5)
                if not name_node or name_node["NumLiveDataNodes"] < 1:
                    return "no DataNode has registered"
                if name_node["FSState"] != "Operational":
                    return "HDFS is in safe mode"
                if not name_node["CapacityTotal"] and "no_space" not in self.features:
                    return "the DataNode has not reported its disk"
                # A NameNode believes in one that has just been restarted for some time.
                actors = json.loads(bean(self.web("dn0"), _DN_INFO, 5)["BPServiceActorInfo"])
                if "RUNNING" not in {actor["ActorState"] for actor in actors}:
                    return "the DataNode has not found its NameNode"
            nodes = [name for name in self.names("nm") if name in running]
            if nodes and any(name in running for name in self.names("rm")):
                heartbeats = {
                    n["id"]: n["lastHealthUpdate"] / 1000
                    for n in self.nodes()
                    if n["state"] == "RUNNING"
                }
                for name in nodes:
                    # What was heard before its restart does not count.
                    if heartbeats.get(self.node_id(name), 0) < states[name]["since"]:
                        return f"{name} has not registered"
                    info = call("GET", f"http://{self.web(name)}/ws/v1/node/info", timeout=5)
                    if not info["nodeInfo"]["nodeHealthy"]:
                        return f"{name} is not healthy"
        except (OSError, WebError, SandboxError, KeyError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

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
        return f"http://{self.web(self.active_rm())}"

    @property
    def webhdfs_url(self) -> str:
        return f"http://{self.web(self._active_name_node() or 'nn0')}"

    @property
    def hdfs(self) -> WebHdfs:
        """The file system, as the user who runs it (its superuser)."""
        return WebHdfs(self.webhdfs_url, self.user)

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
                info = call("GET", f"http://{self.web(name)}/ws/v1/cluster/info", timeout=5)
            except (OSError, WebError):
                continue
            if info and info["clusterInfo"]["haState"] == "ACTIVE":
                return name
        raise SandboxError("no ResourceManager is active")

    def nodes(self) -> List[Dict[str, Any]]:
        """The nodes as the ResourceManager sees them."""
        found = call("GET", f"{self.rm_url}/ws/v1/cluster/nodes", timeout=5)["nodes"]
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
        active = self._active_name_node()
        other = next(name for name in self.names("nn") if name != active)
        self._activate(other)
        return other

    def heal(self) -> None:
        """As it was when it came up, but for the files in HDFS: daemons up, nothing running."""
        for name, state in self.daemons().items():
            if state["exit"] is not None or state["pid"] is None:
                self.start(name)
        if "nn0" in self.daemons() and self._in_safe_mode():
            self.safe_mode(False)
        self.wait_ready()
        for one in self.applications("NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"):
            self.kill_application(one["id"])

    def _in_safe_mode(self) -> bool:
        try:
            state = bean(self.web(self._active_name_node() or "nn0"), _FS_STATE, 5)
        except (OSError, WebError):
            return False
        return state.get("FSState") == "safeMode"

    def _active_name_node(self) -> str:
        names = self.names("nn")
        if len(names) == 1:
            return names[0]
        for name in names:
            try:
                if bean(self.web(name), _NN_STATUS, 5).get("State") == "active":
                    return name
            except (OSError, WebError):
                continue
        return ""

    def _activate(self, name: str) -> None:
        others = [n for n in self.names("nn") if n != name]
        admin = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
        for other in others:
            try:
                if bean(self.web(other), _NN_STATUS, 5).get("State") == "active":
                    self.tool(admin, "-transitionToStandby", other)
            except (OSError, WebError):
                pass  # it is down, and so no active one
        self.tool(admin, "-transitionToActive", "--forceactive", name, answer="y\n")

    def _make_labels(self) -> None:
        labels: Dict[str, bool] = self._cluster["labels"]
        if not labels:
            return
        root = f"{self.rm_url}/ws/v1/cluster"
        listed = [{"name": name, "exclusivity": exclusive} for name, exclusive in labels.items()]
        who = f"user.name={self.user}"
        call("POST", f"{root}/add-node-labels?{who}", {"nodeLabelInfo": listed})
        for name, label in self._cluster["node_labels"].items():
            url = f"{root}/nodes/{self.node_id(name)}/replace-labels?{who}&labels={label}"
            call("POST", url)

    # ------------------------------------------------------------------ applications

    def applications(self, states: str = "") -> List[Dict[str, Any]]:
        """All of them, or those in the states (separated by commas)."""
        query = f"&states={states}" if states else ""
        # By name: with ACLs, an unknown user is shown half of it.
        url = f"{self.rm_url}/ws/v1/cluster/apps?user.name={self.user}{query}"
        found = call("GET", url)["apps"]
        return list((found or {}).get("app", ()))

    def application(self, app_id: str) -> Dict[str, Any]:
        """What the ResourceManager's page says about one."""
        url = f"{self.rm_url}/ws/v1/cluster/apps/{app_id}?user.name={self.user}"
        return dict(call("GET", url)["app"])

    def submit(self, **context: Any) -> str:
        """By REST, the fields as there (``application-name``, ``am-container-spec``, ...);
        the id and the type are made here. For a look at the cluster, not for TonY's jobs."""
        root = f"{self.rm_url}/ws/v1/cluster/apps"
        who = f"?user.name={self.user}"
        app_id = str(call("POST", f"{root}/new-application{who}")["application-id"])
        named = {name.replace("_", "-"): value for name, value in context.items()}
        call("POST", root + who, {"application-id": app_id, "application-type": "TRY", **named})
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
        url = f"{self.rm_url}/ws/v1/cluster/apps/{app_id}/state?user.name={self.user}"
        call("PUT", url, {"state": "KILLED"})
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

    def tool(self, main: str, *arguments: str, answer: str = "", check: bool = True) -> str:
        """A Java program of Hadoop as a client; what it wrote."""
        flags = [f"-Djdk.net.hosts.file={self.folder / 'hosts'}"]
        start = self._distribution.java([self.conf_dir], main, heap_mb=256, flags=flags)
        what = f"{main} {' '.join(arguments)}"
        try:
            done = subprocess.run(
                [*start, *arguments],
                env={**self._cluster["environment"], "HADOOP_USER_NAME": self.user},
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
        return self.tool("org.apache.hadoop.util.RunJar", str(jar), *arguments)

    def jar(self, name: str) -> Path:
        """``hadoop.jar("hadoop-mapreduce-examples")``"""
        return self._distribution.jar(name)


_NOT_LOGS = ("launch_container.sh", "directory.info")
"""Files that YARN itself puts beside the logs."""

_FS_STATE = "Hadoop:service=NameNode,name=FSNamesystemState"
_DN_INFO = "Hadoop:service=DataNode,name=DataNodeInfo"
_NN_STATUS = "Hadoop:service=NameNode,name=NameNodeStatus"
_DFS_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_LOGS = "org.apache.hadoop.yarn.client.cli.LogsCLI"
