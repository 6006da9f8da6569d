"""The verb ``yarn-probe``: checks the cluster from inside one of its containers.

``tony doctor`` submits it as an application of its own, with the same staging, launch and runtime
as a job. It registers with the ResourceManager as a master does, shows its findings on a page (so
the proxy is tried as well), and ends when the page has been read, or after :data:`SHOW_S`. The
findings are in the application's diagnostics too, in case the proxy does not work.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Sequence

from tony_core.hadoop.credentials import Credentials, am_rm_token
from tony_core.hadoop.identity import ClusterIdentity, container_identity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.rm_master import RmMaster
from tony_core.schedulers.yarn.job_credentials import MasterCredentials, read_master_credentials

SHOW_S = 8.0
CONNECT_S = 3.0
POLL_S = 0.25
MOST_NODES = 200


def main(argv: Sequence[str]) -> int:
    """Check, show the findings, end; ``argv`` holds the NodeManagers' addresses."""
    credentials = Credentials.of_container(os.environ)
    job = read_master_credentials(credentials.secrets)
    conf = SiteConfiguration.of(job.site)
    identity = container_identity(conf, job.user, credentials)
    token = am_rm_token(credentials)
    if token is None:
        sys.stderr.write("this container has no token for the ResourceManager\n")
        return 1
    found: Dict[str, Any] = inspect_node()
    read = threading.Event()
    with _serve(found, read) as server:
        threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
        host = os.environ.get("NM_HOST") or socket.gethostname()
        rm = RmMaster.open(
            endpoints.rm_scheduler(conf), token, allowed=endpoints.allowed_protections(conf)
        )
        began = time.monotonic()
        url = f"http://{host}:{server.server_port}/"
        rm.register(host, server.server_port, url)
        found["registered_s"] = round(time.monotonic() - began, 3)
        found["page_url"] = url
        found["storage"] = _error_of(lambda: check_storage(job, conf, identity))
        found["nodes"] = find_unreachable_nodes(argv[:MOST_NODES])
        found["ready"] = True
        end = time.monotonic() + SHOW_S
        while time.monotonic() < end and not read.wait(POLL_S):
            rm.allocate(progress=0.5)
        found["page_read"] = read.is_set()
        rm.finish("SUCCEEDED", json.dumps(found))
        rm.close()
        server.shutdown()
    return 0


def inspect_node() -> Dict[str, Any]:
    """This node, as a program sees it."""
    return {
        "host": os.environ.get("NM_HOST") or socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "uid": os.getuid(),
        "hadoop": shutil.which("hadoop"),
        "nvidia_smi": shutil.which("nvidia-smi"),
        "free_mb": shutil.disk_usage(os.getcwd()).free >> 20,
    }


def check_storage(
    job: MasterCredentials, conf: SiteConfiguration, identity: ClusterIdentity
) -> str:
    """Write, read and remove a file below the staging root; the problem, if there is one."""
    from tony_core.files.hdfs import WebHdfsFileSystem
    from tony_core.files.location import join

    files = WebHdfsFileSystem(conf, identity)
    place = join(job.root, f"probe-{os.getpid()}-{time.time_ns()}")
    data = os.urandom(64 * 1024)
    try:
        files.put(place, data, 0o600)
        if files.get(place) != data:
            return "what was written is not what was read"
    finally:
        files.delete(place)
    return ""


def find_unreachable_nodes(addresses: Sequence[str]) -> Dict[str, str]:
    """The NodeManagers that cannot be reached, and why."""
    found: Dict[str, str] = {}

    def connect(address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_S).close()
        except (OSError, ValueError) as error:
            found[address] = str(error)

    threads: List[threading.Thread] = []
    for address in addresses:
        threads.append(threading.Thread(target=connect, args=(address,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(2 * CONNECT_S)
    return dict(found)


def _error_of(what: Callable[[], str]) -> str:
    try:
        return what()
    except (OSError, ValueError) as error:
        return str(error)


def _serve(found: Dict[str, Any], read: threading.Event) -> ThreadingHTTPServer:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({**found, "time": time.time()}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if found.get("ready"):
                read.set()

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    server = ThreadingHTTPServer(("", 0), Page)
    server.daemon_threads = True
    return server
