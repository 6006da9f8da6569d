"""``tony.xgboost_communicator()`` and ``tony.lightgbm_parameters()``: the job as their network.

Without dependencies of its own, beside tony.py; the libraries are the program's.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from typing import Any, Dict, Iterator, Tuple

# XGBoost waits 2 s before the first retry and 2 s more before each further one: five minutes.
_RETRIES = 17
# For the other ranks to disconnect from the tracker.
_DISCONNECT_S = 60
# Its route gives this machine's address; nothing is sent to it.
_ROUTED = ("10.255.255.255", 9)


@contextlib.contextmanager
def xgboost_communicator(**more: Any) -> Iterator[None]:
    """XGBoost's communicator, with its tracker in rank 0; nothing outside of a job."""
    env = os.environ
    if "TONY_XGBOOST_RANK" not in env:
        yield
        return
    host, port = _address(env["DMLC_TRACKER_URI"]), int(env["DMLC_TRACKER_PORT"])
    arguments: Dict[str, Any] = {
        "dmlc_tracker_uri": host,
        "dmlc_tracker_port": port,
        "dmlc_task_id": env["DMLC_TASK_ID"],
        "dmlc_retry": _RETRIES,
    }
    tracker = None
    if int(env["TONY_XGBOOST_RANK"]) == 0:
        tracker = _tracker(host, port, int(env["DMLC_NUM_WORKER"]))
    collective = importlib.import_module("xgboost.collective")
    with collective.CommunicatorContext(**{**arguments, **more}):
        yield
    if tracker is not None:
        tracker.wait_for(timeout=_DISCONNECT_S)


def _tracker(host: str, port: int, workers: int) -> Any:
    """A started XGBoost tracker."""
    made = importlib.import_module("xgboost.tracker").RabitTracker(
        n_workers=workers, host_ip=host, port=port, sortby="task"
    )
    made.start()
    return made


def lightgbm_parameters(**more: Any) -> Dict[str, Any]:
    """LightGBM's network parameters; outside of a job, or with one machine, only ``more``."""
    env = os.environ
    machines = [_split(each) for each in env.get("TONY_LIGHTGBM_MACHINES", "").split(",") if each]
    if len(machines) < 2:
        return dict(more)
    own = int(env["TONY_LIGHTGBM_RANK"])
    found: Dict[str, Any] = {
        # Addresses: LightGBM looks for its own among those of this machine, which are no names.
        "machines": ",".join(f"{_address(host)}:{port}" for host, port in machines),
        "num_machines": len(machines),
        "local_listen_port": machines[own][1],
        # Without it each would silently train by itself.
        "tree_learner": "data",
    }
    return {**found, **more}


def _split(address: str) -> Tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _address(host: str) -> str:
    """The host's address, the same for every worker.

    Many hosts files map the machine's own name to a loopback address (127.0.1.1). Then the host is
    this machine, and the others need the address that it has on the network; without a network
    the job has no task on another machine.
    """
    address = socket.gethostbyname(host)
    if address == host or not address.startswith("127."):
        return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ROUTED)
        except OSError:
            return address
        return str(probe.getsockname()[0])
