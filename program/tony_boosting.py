"""What tony.xgboost_communicator() and tony.lightgbm_parameters() do: a job's facts, passed on.

Without dependencies of its own, beside tony.py; the libraries are the program's.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from typing import Any, Dict, Iterator, List, Optional, Tuple

# XGBoost waits 2 s before the first retry and 2 s more before each further one: five minutes.
_RETRIES = 17
# Until the others have said good-bye to the tracker.
_GOODBYE_S = 60


@contextlib.contextmanager
def xgboost_communicator(**more: Any) -> Iterator[None]:
    """XGBoost's communicator, with its tracker in rank 0; nothing outside of a job."""
    env = os.environ
    if "TONY_XGBOOST_RANK" not in env:
        yield
        return
    host, port = env["DMLC_TRACKER_URI"], int(env["DMLC_TRACKER_PORT"])
    arguments: Dict[str, Any] = {
        "dmlc_tracker_uri": host,
        "dmlc_tracker_port": port,
        "dmlc_task_id": env["DMLC_TASK_ID"],
        "dmlc_retry": _RETRIES,
    }
    tracker = None
    if int(env["TONY_XGBOOST_RANK"]) == 0:
        tracker = _tracker(host, port, int(env["DMLC_NUM_WORKER"]))
        # The address by which the others see this one is where it calls the tracker from.
        arguments["dmlc_tracker_uri"] = tracker.worker_args()["dmlc_tracker_uri"]
    collective = importlib.import_module("xgboost.collective")
    with collective.CommunicatorContext(**{**arguments, **more}):
        yield
    if tracker is not None:
        tracker.wait_for(timeout=_GOODBYE_S)


def _tracker(host: str, port: int, workers: int) -> Any:
    """XGBoost's own, listening; where the host's name means itself alone, at what it finds."""
    address: Optional[str] = _resolved(host)
    if address != host and _is_loopback(address):
        address = None
    made = importlib.import_module("xgboost.tracker").RabitTracker(
        n_workers=workers, host_ip=address, port=port, sortby="task"
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
    addresses = [_resolved(host) for host, _ in machines]
    addresses[own] = _seen_by_others(addresses, own)
    found: Dict[str, Any] = {
        # Addresses: LightGBM looks itself up among those of this machine, where names do not stand.
        "machines": ",".join(
            f"{address}:{port}" for address, (_, port) in zip(addresses, machines)
        ),
        "num_machines": len(machines),
        "local_listen_port": machines[own][1],
        # Without it each would train by itself, without a word.
        "tree_learner": "data",
    }
    return {**found, **more}


def _seen_by_others(addresses: List[str], own: int) -> str:
    """This machine's address; the file of hosts may say only what it is to itself."""
    others = [address for address in addresses if not _is_loopback(address)]
    if not _is_loopback(addresses[own]) or not others:
        return addresses[own]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((others[0], 9))  # sends nothing
        return str(probe.getsockname()[0])


def _split(address: str) -> Tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _resolved(host: str) -> str:
    return socket.gethostbyname(host)


def _is_loopback(address: Optional[str]) -> bool:
    return address is not None and address.startswith("127.")
