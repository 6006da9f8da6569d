"""What tony.xgboost_communicator() and tony.lightgbm_parameters() do: a job's facts, passed on.

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
# Until the others have said good-bye to the tracker.
_GOODBYE_S = 60
# Asked for the way to it, never sent anything.
_SOMEWHERE = ("10.255.255.255", 9)


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
        tracker.wait_for(timeout=_GOODBYE_S)


def _tracker(host: str, port: int, workers: int) -> Any:
    """XGBoost's own, listening."""
    made = importlib.import_module("xgboost.tracker").RabitTracker(
        n_workers=workers, host_ip=host, port=port, sortby="task"
    )
    made.start()
    return made


def lightgbm_parameters(**more: Any) -> Dict[str, Any]:
    """LightGBM's parameters of the network; outside of a job, or alone, only what is given."""
    env = os.environ
    machines = [_split(each) for each in env.get("TONY_LIGHTGBM_MACHINES", "").split(",") if each]
    if len(machines) < 2:
        return dict(more)
    own = int(env["TONY_LIGHTGBM_RANK"])
    found: Dict[str, Any] = {
        # Addresses: LightGBM looks itself up among those of this machine, where names do not stand.
        "machines": ",".join(f"{_address(host)}:{port}" for host, port in machines),
        "num_machines": len(machines),
        "local_listen_port": machines[own][1],
        # Without it each would train by itself, without a word.
        "tree_learner": "data",
    }
    return {**found, **more}


def _split(address: str) -> Tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _address(host: str) -> str:
    """The host's address, the same for every worker.

    Many a file of hosts says of the machine's own name only what it is to itself (127.0.1.1). Then
    it is this machine, and what counts is the address at which it meets others; where there is
    no network, nobody else can be in the job.
    """
    address = socket.gethostbyname(host)
    if address == host or not address.startswith("127."):
        return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_SOMEWHERE)
        except OSError:
            return address
        return str(probe.getsockname()[0])
