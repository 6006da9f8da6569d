"""How fast files reach HDFS: ours against the least that could do it.

    HADOOP_CONF_DIR=... python benchmarks/webhdfs.py [--mb 64] [--rounds 15] [--small 50]

The raw way is a loop around ``http.client``: ask the NameNode, send blocks of 1 MB to the
DataNode, done. It knows no failover, is not atomic, and writes no file of unknown length. The
ways take turns within each round, so that whatever else the machine does hits all of them, and
the medians are compared. One JSON object a line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time
from typing import BinaryIO, Callable, Dict, List
from urllib.parse import urlsplit

from tony_core.files.hdfs import of_site
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name
from tony_core.hadoop.site.endpoints import name_service

BLOCK = 1 << 20


class Raw:
    """One NameNode, one way, no second thought."""

    def __init__(self) -> None:
        web = name_service(SiteConfiguration.load()).web.addresses[0]
        self._names = http.client.HTTPConnection(web.host, web.port)
        self._user = user_name()

    def create(self, path: str) -> str:
        """Where to send the file."""
        query = f"op=CREATE&overwrite=true&user.name={self._user}"
        self._names.request("PUT", f"/webhdfs/v1{path}?{query}")
        answer = self._names.getresponse()
        answer.read()
        return answer.headers["Location"]

    def upload(self, source: str, path: str) -> None:
        """A local file."""
        parts = urlsplit(self.create(path))
        node = http.client.HTTPConnection(parts.netloc)
        node.putrequest("PUT", f"{parts.path}?{parts.query}")
        node.putheader("Content-Length", str(os.path.getsize(source)))
        node.endheaders()
        with open(source, "rb") as file:
            while block := file.read(BLOCK):
                node.send(block)
        assert node.getresponse().status == 201
        node.close()

    def put(self, path: str, data: bytes) -> None:
        """A small one."""
        parts = urlsplit(self.create(path))
        node = http.client.HTTPConnection(parts.netloc)
        node.request("PUT", f"{parts.path}?{parts.query}", data)
        assert node.getresponse().status == 201
        node.close()

    def fetch(self, path: str) -> None:
        """All of it, thrown away."""
        self._names.request("GET", f"/webhdfs/v1{path}?op=OPEN&user.name={self._user}")
        answer = self._names.getresponse()
        answer.read()
        parts = urlsplit(answer.headers["Location"])
        node = http.client.HTTPConnection(parts.netloc)
        node.request("GET", f"{parts.path}?{parts.query}")
        answer = node.getresponse()
        while answer.read(BLOCK):
            pass
        node.close()


def timed(action: Callable[[], object]) -> float:
    """Seconds that it takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def take_turns(ways: Dict[str, Callable[[], object]], rounds: int) -> Dict[str, List[float]]:
    """Each way once a round, in turn; a first round is not counted."""
    found: Dict[str, List[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seconds = timed(ways[name])
            if number:
                found[name].append(seconds)
    return found


def report(what: str, found: Dict[str, List[float]], raw: str, size: int, unit: str) -> None:
    """Medians, and each way's speed in raw's."""
    floor = statistics.median(found[raw])
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        line = {
            "benchmark": what,
            "way": name,
            unit: rate(size, middle, unit),
            "best": rate(size, min(seconds), unit),
            "of_raw": round(floor / middle, 3),
            "rounds": len(seconds),
        }
        print(json.dumps(line), flush=True)


def rate(size: int, seconds: float, unit: str) -> float:
    """A figure as it is reported."""
    return round(size / seconds / 1e6, 1) if unit == "mb_per_s" else round(seconds * 1e3, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mb", type=int, default=64, help="size of the large file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", type=int, default=50, help="rounds with a small file")
    arguments = parser.parse_args()
    files, raw = of_site(), Raw()
    root = f"/user/{user_name()}/webhdfs-benchmark-{os.getpid()}"
    files.mkdir(root)
    try:
        with tempfile.NamedTemporaryFile() as source:
            for _ in range(arguments.mb):
                source.write(os.urandom(BLOCK))
            source.flush()
            size = arguments.mb * BLOCK

            def produce(stream: BinaryIO) -> None:
                with open(source.name, "rb") as file:
                    while block := file.read(16 << 10):  # as an archive is packed
                        stream.write(block)

            def read() -> None:
                with files.open(f"{root}/upload") as stream:
                    while stream.read(BLOCK):
                        pass

            ways: Dict[str, Callable[[], object]] = {
                "raw": lambda: raw.upload(source.name, f"{root}/raw"),
                "upload": lambda: files.upload(source.name, f"{root}/upload"),
                "write": lambda: files.write(f"{root}/write", produce),
            }
            report("large file up", take_turns(ways, arguments.rounds), "raw", size, "mb_per_s")
            ways = {"raw": lambda: raw.fetch(f"{root}/raw"), "open": read}
            report("large file down", take_turns(ways, arguments.rounds), "raw", size, "mb_per_s")
        data = os.urandom(4096)
        ways = {
            "raw": lambda: raw.put(f"{root}/small-raw", data),
            "put": lambda: files.put(f"{root}/small", data),
        }
        report("4 KB file up", take_turns(ways, arguments.small), "raw", len(data), "ms")
        ways = {"stat": lambda: files.stat(f"{root}/small"), "mkdir": lambda: files.mkdir(root)}
        report("one NameNode call", take_turns(ways, arguments.small), "stat", 0, "ms")
    finally:
        files.delete(root)
        files.close()


if __name__ == "__main__":
    main()
