"""What jobs that are waited for cost a triggerer: its share of a core.

    python benchmarks/airflow_triggerer.py [--jobs 200] [--seconds 120]

A whole Airflow runs (``tests/cluster/airflow``), with a task for each job, deferred to one
triggerer; the jobs are simulated: a ResourceManager (``tests/cluster/fakeyarn``) that lists them
as running, and pages that answer as theirs do. The processor time of all the triggerer's
processes is read before the tasks are there and when all are waited for. What `the triggers`
cost is the difference; the rest is Airflow's own. One JSON object a line.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from tests.cluster.airflow.rest import wait_for  # noqa: E402
from tests.cluster.airflow.standing import Airflow  # noqa: E402
from tests.cluster.hadoop import supervisor  # noqa: E402
from tony_core.hadoop.identity import ClusterIdentity  # noqa: E402
from tony_core.hadoop.site import endpoints  # noqa: E402
from tony_core.hadoop.site.configuration import SiteConfiguration  # noqa: E402
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext  # noqa: E402
from tony_core.hadoop.yarn.messages.yarn import ContainerLaunchContext  # noqa: E402
from tony_core.hadoop.yarn.records import Capability  # noqa: E402
from tony_core.hadoop.yarn.rm_client import RmClient  # noqa: E402
from tony_core.hadoop.yarn.rm_master import RmMaster  # noqa: E402

BAR = 0.10
SETTLE_S = 30.0
WITHIN = 900.0

DAG = '''
import json
from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import StartTriggerArgs


class Waits(BaseOperator):
    """Deferred from the start: no worker is needed to get it there."""

    start_from_trigger = True

    def __init__(self, app_id, **more):
        super().__init__(**more)
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls="tony_airflow.triggers.tony.TonyTrigger",
            trigger_kwargs={{
                "site": {{"scheduler": "yarn", "hadoop_conf_dir": "{conf_dir}"}},
                "app_id": app_id,
                "poll_interval": 5.0,
                "lease_s": 1500.0,
                "links": ["page", "tensorboard", "yarn", "portal", "log:worker:0"],
            }},
            next_method="execute_complete",
            next_kwargs=None,
            timeout=None,
        )

    def execute_complete(self, context, event):
        return event


with DAG("waits", schedule=None, max_active_tasks=1000):
    for app_id in json.loads('{app_ids}'):
        Waits(task_id=app_id, app_id=app_id)
'''


class Pages(BaseHTTPRequestHandler):
    """What the masters of the jobs would answer."""

    protocol_version = "HTTP/1.1"
    requested = 0

    def do_GET(self) -> None:
        Pages.requested += 1
        task = {
            "task": "worker:0",
            "role": "worker",
            "index": 0,
            "state": "running",
            "session": 0,
            "node": "node1",
            "log_url": "http://node1:8042/node/containerlogs/it",
            "progress": 0.5,
            "reported": {"accuracy": 0.9},
        }
        answer: Dict[str, Any] = {
            "state": "RUNNING",
            "name": "waits",
            "session": 0,
            "links": {"tensorboard": "tensorboard/"},
        }
        body = json.dumps({"tasks": [task]} if self.path.endswith("tasks") else answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: Any) -> None:
        """Not one line for each."""


def start_jobs(conf: SiteConfiguration, count: int, port: int) -> List[str]:
    """Applications that are running, as far as the ResourceManager knows."""
    found = []
    client = RmClient.open(conf, identity=ClusterIdentity(getpass.getuser()))
    for _ in range(count):
        app = client.new_application().id
        client.submit(
            ApplicationSubmissionContext(
                application_id=app.to_message(),
                application_name="waits",
                unmanaged_am=True,
                application_type="TONY",
                am_container_spec=ContainerLaunchContext(),
                resource=Capability(64, 1).to_message(),
                max_app_attempts=1,
            )
        )
        token = client.report(app).am_rm_token
        assert token is not None
        master = RmMaster.open(
            endpoints.rm_scheduler(conf), token, allowed=endpoints.allowed_protections(conf)
        )
        master.register("127.0.0.1", port, f"http://127.0.0.1:{port}/{app}/")
        master.close()
        found.append(str(app))
    client.close()
    return found


def used(airflow: Airflow) -> float:
    """Processor seconds of the triggerer and its children so far."""
    (main,) = [airflow.daemons()["triggerer"]["pid"]]
    total = 0
    for pid in [main, *supervisor.descendants(main)]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def share(airflow: Airflow, seconds: float) -> float:
    """Of a core, over some time."""
    began, before = time.monotonic(), used(airflow)
    time.sleep(seconds)
    return (used(airflow) - before) / (time.monotonic() - began)


def waited_for(airflow: Airflow) -> int:
    """How many the triggerer says it runs."""
    log = (airflow.folder / "logs" / "triggerer.log").read_text(errors="replace")
    found = re.findall(r"(\d+) triggers currently running", log)
    return int(found[-1]) if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    words = parser.parse_args()
    pages = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fake = [sys.executable, "-m", "tests.cluster.fakeyarn", str(folder / "yarn")]
        with subprocess.Popen(
            fake, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            conf_dir = folder / "yarn" / "conf"
            conf = SiteConfiguration.load({}, conf_dir=str(conf_dir))
            ids = start_jobs(conf, words.jobs, pages.server_port)
            source = DAG.format(conf_dir=conf_dir, app_ids=json.dumps(ids))
            airflow = Airflow.up(folder / "airflow", {"waits.py": source})
            try:
                idle = share(airflow, words.seconds)
                airflow.rest.trigger("waits", "all")
                wait_for(
                    lambda: waited_for(airflow),
                    lambda count: count >= words.jobs,
                    lambda count: f"{count} are waited for\n{airflow}",
                    within=WITHIN,
                )
                time.sleep(SETTLE_S)
                requested = Pages.requested
                loaded = share(airflow, words.seconds)
                requested = Pages.requested - requested
                assert waited_for(airflow) == words.jobs, str(airflow)
            finally:
                airflow.remove()
    for figure, value in (
        ("triggerer with nothing to wait for", idle),
        ("triggerer with all of them", loaded),
        ("the triggers", loaded - idle),
    ):
        line = {
            "benchmark": "airflow_triggerer",
            "figure": figure,
            "share_of_a_core": round(value, 4),
            "bar": BAR,
            "jobs": words.jobs,
            "seconds": words.seconds,
            "pages_asked_a_second": round(requested / words.seconds, 1),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
