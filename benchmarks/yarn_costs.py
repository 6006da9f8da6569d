"""What a job on YARN costs beside its start: bytes, seconds at its end and after a failure, memory.

    HADOOP_CONF_DIR=... python benchmarks/yarn_costs.py [--figures upload,end,recovery,memory,many]
        [--runs 3] [--many 200]

A JSON line for each figure, with the machine's load. Nodes and client must be on this machine
(a cluster of tests/cluster): the programs write their times into a folder, and processes are
found by what stands in their environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from measuring import judged

CHECKOUT = Path(__file__).resolve().parents[1]
DEADLINE_S = 180.0
SECOND_BYTES, END_S, RECOVERY_S = 100_000, 1.0, 2.0  # the bars
RSS_MB = {"master": 45.0, "executor": 16.0, "client": 70.0}
COUNTED = """
import socket, sys
sent = [0]
def counting(name):
    plain = getattr(socket.socket, name)
    def call(self, data, *more):
        sent[0] += sum(map(len, data)) if name == "sendmsg" else len(data)
        return plain(self, data, *more)
    setattr(socket.socket, name, call)
for name in ("send", "sendall", "sendmsg"):
    counting(name)
from tony_core.cli.main import main
code = main(sys.argv[1:])
print("sent", sent[0])
sys.exit(code)
"""
WAITING = "echo > {0}/$TASK_INDEX.$$; while [ ! -e {0}/go ]; do sleep 0.1; done"


class Client:
    """One ``tony submit``."""

    def __init__(self, count: int, line: str, more: Dict[str, Any], words: List[str]) -> None:
        settings = {
            "tony.application.framework": "mpi",
            "tony.worker.instances": count,
            "tony.worker.memory": 64,
            "tony.am.memory": 256,
            "tony.application.name": "costs",
            **more,
        }
        command = [sys.executable, "-c", COUNTED, "submit", "--scheduler", "yarn", *words]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        path = os.pathsep.join(str(CHECKOUT / part) for part in (".", "executor", "program"))
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as this lives
        self.process = subprocess.Popen(
            [*command, "--executes", f"sh -c '{line}'"],
            env={**os.environ, "PYTHONPATH": path},
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def text(self) -> str:
        """What it has printed so far."""
        self.log.seek(0)
        return self.log.read()

    @property
    def app_id(self) -> str:
        """Of its application."""
        return re.findall(r"application_\d+_\d+", self.text())[0]

    def end(self) -> float:
        """Wait for it; when it ended."""
        status = self.process.wait(DEADLINE_S)
        at = time.time()
        if status:
            sys.exit(self.text())
        return at

    @property
    def sent(self) -> int:
        """The bytes it sent to anybody."""
        return int(re.findall(r"^sent (\d+)$", self.text(), re.M)[0])


@contextmanager
def waiting(count: int, **more: Any) -> Iterator[Tuple[Client, Path]]:
    """A job whose programs all run, and end after this."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        client = Client(count, WAITING.format(name), more, [])
        try:
            until(lambda: len(list(folder.iterdir())) >= count, client)
            yield client, folder
        finally:
            (folder / "go").touch()
            client.end()


def until(true: Callable[[], bool], client: Optional[Client] = None) -> None:
    """Wait for it."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        if time.monotonic() > end or (client and client.process.poll() is not None):
            sys.exit(client.text() if client else "no client started in time")
        time.sleep(0.02)


# ---------------------------------------------------------------------- figures


def upload(runs: int) -> Iterator[Dict[str, Any]]:
    """All bytes that leave the client, RPC and HTTP heads too; 2 MB of source."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "data").write_bytes(os.urandom(2 << 20))
        sent = []
        for _ in range(2):
            client = Client(1, "true", {}, ["--src_dir", name])
            client.end()
            sent.append(client.sent)
    verdict = judged(sent[1], SECOND_BYTES)
    yield {"figure": "bytes sent by a submit", "first": sent[0], "second": sent[1], **verdict}


def end(runs: int) -> Iterator[Dict[str, Any]]:
    """From the last program's end to the client's exit."""
    for count in (1, 8, 32):
        taken = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as name:
                Path(name).chmod(0o777)
                client = Client(count, f"sleep 0.2; date +%s.%N > {name}/$TASK_INDEX", {}, [])
                at = client.end()
                taken.append(at - max(float(one.read_text()) for one in Path(name).iterdir()))
        found = seconds(taken, END_S)
        yield {"figure": "last end to client's exit", "containers": count, **found}


def recovery(runs: int) -> Iterator[Dict[str, Any]]:
    """From the death of one worker's program to all programs running again, executors kept."""
    for count in (4, 32):
        taken = [recovered(count) for _ in range(runs)]
        yield {"figure": "warm recovery", "containers": count, **seconds(taken, RECOVERY_S)}


def recovered(count: int) -> float:
    """Once: a second failure of the same kind so soon would end the job."""
    with waiting(count, **{"tony.am.retry-count": 1}) as (client, folder):
        time.sleep(2.0)
        before = set(folder.iterdir())
        victim = max(before, key=lambda path: path.stat().st_mtime)
        began = time.time()
        os.kill(int(victim.name.partition(".")[2]), signal.SIGKILL)
        until(lambda: len(set(folder.iterdir()) - before) >= count, client)
        return max(path.stat().st_mtime for path in set(folder.iterdir()) - before) - began


def memory(runs: int) -> Iterator[Dict[str, Any]]:
    """Resident, and of that what is shared with no other process, at 32 tasks."""
    with waiting(32) as (client, _):
        time.sleep(3.0)
        found: Dict[str, List[Tuple[float, float]]] = {"client": [used(client.process.pid)]}
        there = processes(client.app_id)
        for pid, words in there.items():
            kind = kind_of(words)
            if kind == "executor" and kind_of(there.get(parent(pid), [""])) != kind:
                kind = "executor's guard"  # the process in front of it
            if kind:
                found.setdefault(kind, []).append(used(pid))
    for kind, sizes in found.items():
        yield {
            "figure": "memory",
            "of": kind,
            "processes": len(sizes),
            "rss_mb": round(statistics.median(size[0] for size in sizes), 1),
            "rss_mb_most": round(max(size[0] for size in sizes), 1),
            "private_mb": round(statistics.median(size[1] for size in sizes), 1),
            **(judged(max(size[0] for size in sizes), RSS_MB[kind]) if kind in RSS_MB else {}),
        }


def many(count: int) -> Iterator[Dict[str, Any]]:
    """As many containers at once."""
    began = time.time()
    with waiting(count) as (_, folder):
        first = max(path.stat().st_mtime for path in folder.iterdir())
        ended = time.time()
    yield {
        "figure": "start to all programs",
        "containers": count,
        "seconds": round(first - began, 2),
        "end_s": round(time.time() - ended, 2),
    }


def seconds(taken: List[float], bar: float) -> Dict[str, Any]:
    """Of some runs."""
    return {
        "runs": len(taken),
        "median_s": round(statistics.median(taken), 3),
        "least_s": round(min(taken), 3),
        "most_s": round(max(taken), 3),
        **judged(statistics.median(taken), bar),
    }


# ---------------------------------------------------------------------- processes


def processes(app_id: str) -> Dict[int, List[str]]:
    """What runs in an application's containers."""
    mark = f"container_{app_id.partition('_')[2]}_".encode()
    found = {}
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and mark in (path / "environ").read_bytes():
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found[int(path.name)] = words
        except OSError:
            continue  # it has ended, or is another user's
    return found


def kind_of(words: List[str]) -> str:
    """Which of our processes it is; empty for shells and programs."""
    if "python" in os.path.basename(words[0]) and "yarn-start" in words:
        return words[words.index("yarn-start") + 1]
    return ""


def parent(pid: int) -> int:
    """The process that made it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def used(pid: int) -> Tuple[float, float]:
    """Resident and private megabytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {name: int(kb) for name, kb in re.findall(r"^(\w+): +(\d+) kB$", text, re.M)}
    private = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return sizes["Rss"] / 1024, private / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures", default="upload,end,recovery,memory,many")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--many", type=int, default=200)
    args = parser.parse_args()
    figures = {"upload": upload, "end": end, "recovery": recovery, "memory": memory, "many": many}
    for name in args.figures.split(","):
        for line in figures[name](args.many if name == "many" else args.runs):
            line = {"benchmark": "yarn_costs", **line, "load": round(os.getloadavg()[0], 1)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
