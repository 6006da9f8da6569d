"""Thousands of executors at one master: until all have their spec, and what holding them costs.

    python benchmarks/core_scale.py [--quick] [--counts 1000,10000]

The master is real, in a process of its own; executors are connections that speak the real
protocol (``simulated.py``), in this process. With TensorFlow each gets the addresses of all; with
JAX the rendezvous point. The floor is as many bare TCP connections to a server that gives
back what it gets: one 100-byte word each for the spec, one of a heartbeat's size each second, and
for the end one more each, after whose return both sides hang up.
On a machine with few cores both sides share them, so times are an upper bound; processor time
and memory are the master's alone.

Needs as many open files as connections, in each of two processes (``ulimit -Hn``).
"""

from __future__ import annotations

import argparse
import select
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

from measuring import cpu_s, figure, master_bar_mb, median, rss_kb
from simulated import SPREAD, WITHIN_S, Executors, Gang, address_of, enough_files, start_bare
from simulated_master import HEARTBEAT_S

ECHO = str(Path(__file__).resolve().with_name("bare_echo.py"))
READY_BAR_S = {"tensorflow": 5.0, "jax": 30.0}
STEADY_S, QUICK_S = {"tensorflow": 5.0, "jax": 20.0}, 2.0
BEAT_BYTES = 45


def ours(framework: str, count: int, steady_s: float) -> Dict[str, float]:
    """One gang from the grant to its end."""
    with Gang(framework, count) as gang:
        sample = {
            "ready_s": max(gang.executors.specs) - gang.master.granted,
            "ready_cpu_s": cpu_s(gang.pid),
            "spec_kb": gang.executors.spec_bytes / 1024,
            "calls_again": gang.executors.calls_again,
            "empty_kb": gang.empty_kb,
        }
        gang.beat(min(3.0, steady_s))
        sample.update(_steady(gang.executors, gang.pid, steady_s))
        sample["end_s"] = gang.end()
        return sample


def _steady(executors: Executors, pid: int, seconds: float) -> Dict[str, float]:
    began, spent, beats = time.monotonic(), cpu_s(pid), executors.beats
    most = 0.0
    while time.monotonic() < began + seconds:
        executors.turn(beating=True)
        most = max(most, rss_kb(pid)) if executors.beats % 50 == 0 else most
    took = time.monotonic() - began
    return {
        "cores": (cpu_s(pid) - spent) / took,
        "beats_per_s": (executors.beats - beats) / took,
        "rss_kb": max(most, rss_kb(pid)),
    }


def floor(count: int, steady_s: float) -> Dict[str, float]:
    """As many connections to a server that gives back what it gets."""
    with tempfile.TemporaryDirectory(prefix="core-scale-") as name:
        process, out = start_bare([ECHO], Path(name))
        socks: List[socket.socket] = []
        try:
            port = int(out.readline().split()[1])
            began = time.monotonic()
            poll = select.epoll()
            for number in range(count):
                sock = socket.socket()
                sock.bind((address_of(number), 0))
                sock.connect(("127.0.0.1", port))
                sock.setblocking(False)
                sock.send(bytes(100))
                poll.register(sock, select.EPOLLIN)
                socks.append(sock)
            by_number = {sock.fileno(): sock for sock in socks}
            _all_back(poll, by_number, 100 * count)
            sample: Dict[str, float] = {"ready_s": time.monotonic() - began}
            began, spent, portion = time.monotonic(), cpu_s(process.pid), 0
            beat_at, outside = began, 0
            while time.monotonic() < began + steady_s:
                outside -= _echoes(poll, by_number)
                if time.monotonic() >= beat_at:
                    beat_at += HEARTBEAT_S / SPREAD
                    portion = (portion + 1) % SPREAD
                    for sock in socks[portion::SPREAD]:
                        outside += sock.send(bytes(BEAT_BYTES))
            took = time.monotonic() - began
            sample["cores"] = (cpu_s(process.pid) - spent) / took
            sample["rss_kb"] = rss_kb(process.pid)
            _all_back(poll, by_number, outside)
            ended = time.monotonic()
            _all_back(poll, by_number, sum(sock.send(bytes(BEAT_BYTES)) for sock in socks))
            for sock in socks:
                sock.shutdown(socket.SHUT_WR)
            while by_number:
                _echoes(poll, by_number)
            sample["end_s"] = time.monotonic() - ended
            poll.close()
            return sample
        finally:
            for sock in socks:
                sock.close()
            process.kill()
            process.wait()


def _all_back(poll: Any, by_number: Dict[int, socket.socket], count: int) -> None:
    """Until so many bytes have come back."""
    end = time.monotonic() + WITHIN_S
    while count > 0:
        count -= _echoes(poll, by_number)
        if time.monotonic() > end or not by_number:
            sys.exit(f"the bare server has not given {count} bytes back")


def _echoes(poll: Any, by_number: Dict[int, socket.socket]) -> int:
    """The bytes that came; who is hung up on is there no more."""
    received = 0
    for number, _events in poll.poll(1.0 / SPREAD, 1024):
        data = by_number[number].recv(65536)
        received += len(data)
        if not data:
            poll.unregister(number)
            del by_number[number]
    return received


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help="how many of each (default 3 and 1)")
    parser.add_argument("--counts", help="with TensorFlow, with JAX (default 1000,10000)")
    parser.add_argument("--quick", action="store_true", help="100 and 500, once")
    args = parser.parse_args()
    counts = args.counts or ("100,500" if args.quick else "1000,10000")
    for framework, text, few in zip(("tensorflow", "jax"), counts.split(","), (3, 1), strict=False):
        count = int(text)
        steady_s = QUICK_S if args.quick else STEADY_S[framework]
        enough_files(count)
        runs = args.runs or (1 if args.quick else few)
        found: Dict[str, List[Dict[str, float]]] = {"ours": [], "floor": []}
        for _ in range(runs):
            found["floor"].append(floor(count, steady_s))
            found["ours"].append(ours(framework, count, steady_s))
        report(framework, count, runs, found)


def report(framework: str, count: int, runs: int, found: Dict[str, List[Dict[str, float]]]) -> None:
    """Medians."""

    def of(what: str, key: str) -> float:
        return median([sample[key] for sample in found[what]])

    name = f"scale {framework} {count}"
    bare = f"{count} bare TCP connections"
    more: Dict[str, Any] = {"tasks": count, "runs": runs}
    figure(
        f"{name}: grant to the last spec", of("ours", "ready_s"), "s",
        floor=of("floor", "ready_s"), floor_is=bare, bar=READY_BAR_S[framework],
        master_cpu_s=of("ours", "ready_cpu_s"), spec_kb=of("ours", "spec_kb"), **more,
    )  # fmt: skip
    figure(
        f"{name}: heartbeats at 1 Hz", of("ours", "cores"), "cores",
        floor=of("floor", "cores"), floor_is=bare, bar=1.0,
        beats_per_s=of("ours", "beats_per_s"), **more,
    )  # fmt: skip
    figure(
        f"{name}: the master's memory", of("ours", "rss_kb") / 1024, "MB",
        floor=of("floor", "rss_kb") / 1024, floor_is=bare,
        bar=master_bar_mb(count),
        kb_for_a_task=(of("ours", "rss_kb") - of("ours", "empty_kb")) / count, **more,
    )  # fmt: skip
    figure(
        f"{name}: last word to the job's end", of("ours", "end_s"), "s",
        floor=of("floor", "end_s"), floor_is=f"{bare}, a word and back, hung up", **more,
    )  # fmt: skip


if __name__ == "__main__":
    main()
