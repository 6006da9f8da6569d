"""What staging a virtual environment on HDFS costs, the first time and again.

    HADOOP_CONF_DIR=... python benchmarks/staging.py [--mb 1000] [--files 34000] [--rounds 3]
                                                     [--root hdfs:///tmp/staging-benchmark]

It makes an environment of so many files, as large as those of deep-learning frameworks are,
and takes turns between the raw way (its tar, made before, sent by a loop around ``http.client``
in blocks of 1 MB: no second thought) and staging the folder itself, which packs it on its way.
Digests are known by then, as they are from the second submit on: what hashing costs stands on a
line of its own. One JSON object a line; ``of_raw`` is what to look at.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple
from urllib.parse import urlsplit

from measuring import judged

from tony_core.bundle import jobfolder
from tony_core.bundle.client import packing, planning, staging
from tony_core.bundle.client.tree import Tree, hash_tree, scan
from tony_core.bundle.digests import GRAIN_NS, DigestCache
from tony_core.files.registry import filesystem
from tony_core.files.webhdfs.namenodes import NameNodes
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name
from tony_core.hadoop.site.endpoints import name_service
from tony_core.job.spec import Job, Program, Resources, Role

BLOCK = 1 << 20
OF_RAW = 0.8  # the bar: of the speed of a bare upload


def make_environment(folder: str, files: int, size: int) -> None:
    """Mostly small files in many folders, and a few libraries that hold most of the bytes."""
    dice = random.Random(1)
    libraries = max(1, files // 1000)
    small = [min(int(dice.lognormvariate(8.3, 1.4)), 1 << 20) for _ in range(files - libraries)]
    left = max(0, size - sum(small))
    noise = os.urandom(4 << 20)
    for number, length in enumerate(small + [left // libraries] * libraries):
        place = os.path.join(folder, "lib", f"package{number % 300}", f"part{number % 7}")
        if number < 2100:
            os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"module{number}.py"), "wb") as stream:
            while length > 0:
                at = dice.randrange(len(noise) // 2)
                length -= stream.write(noise[at : at + min(length, 2 << 20)])
    os.makedirs(os.path.join(folder, "bin"))
    os.symlink("/usr/bin/python3", os.path.join(folder, "bin", "python"))


def raw_upload(source: str, path: str) -> None:
    """The least that can send a file to HDFS."""
    web = name_service(SiteConfiguration.load()).web.addresses[0]
    names = http.client.HTTPConnection(web.host, web.port)
    names.request("PUT", f"/webhdfs/v1{path}?op=CREATE&overwrite=true&user.name={user_name()}")
    answer = names.getresponse()
    answer.read()
    names.close()
    parts = urlsplit(answer.headers["Location"])
    node = http.client.HTTPConnection(parts.netloc)
    node.putrequest("PUT", f"{parts.path}?{parts.query}")
    node.putheader("Content-Length", str(os.path.getsize(source)))
    node.endheaders()
    with open(source, "rb") as file:
        while block := file.read(BLOCK):
            node.send(block)
    assert node.getresponse().status == 201
    node.close()


def timed(action: Callable[[], Any]) -> Tuple[float, Any]:
    """Seconds that it takes, and what it gives."""
    begun = time.perf_counter()
    given = action()
    return time.perf_counter() - begun, given


def record(what: str, seconds: float, size: int = 0, **more: Any) -> None:
    """One line."""
    line: Dict[str, Any] = {"benchmark": what, "seconds": round(seconds, 3)}
    if size:
        line["mb_per_s"] = round(size / seconds / 1e6, 1)
    print(json.dumps({**line, **more}), flush=True)


@contextlib.contextmanager
def counted() -> Iterator[List[str]]:
    """The calls to the NameNode meanwhile."""
    calls: List[str] = []
    whole = NameNodes.call

    def call(self: NameNodes, method: str, path: str, operation: str, **more: str) -> Any:
        calls.append(operation)
        return whole(self, method, path, operation, **more)

    NameNodes.call = call  # type: ignore[assignment]
    try:
        yield calls
    finally:
        NameNodes.call = whole  # type: ignore[method-assign]


def hashed(folder: str) -> Tree:
    """The folder, scanned and hashed anew."""
    tree = scan(folder)
    hash_tree(tree, DigestCache(folder, None))
    return tree


def pack_to(tree: Tree, path: str) -> None:
    """Its tar in a local file."""
    with open(path, "wb") as output:
        packing.pack(tree, output)


def measure(folder: str, root: str, rounds: int) -> None:
    """All of it."""
    environment = os.path.join(folder, "venv")
    job = Job(
        name="staging",
        roles=(Role("worker", 1, Resources(), "true"),),
        program=Program(venv=environment),
    )
    files = filesystem(root)
    path = urlsplit(root).path

    def planned() -> planning.Plan:
        plan = planning.plan(job, root)
        assert not plan.errors, plan.problems
        return plan

    def staged(plan: planning.Plan, number: int) -> None:
        staging.stage(plan, root, f"application_0_{number}", job, b"")

    def submit(number: int) -> None:
        staged(planned(), number)

    seconds, tree = timed(lambda: hashed(environment))
    record("hash, once", seconds, tree.size, files=len(tree.entries))
    size = packing.packed_size(tree)
    seconds, _ = timed(lambda: pack_to(tree, os.devnull))
    record("pack", seconds, size)
    archive = os.path.join(folder, "venv.tar")
    pack_to(tree, archive)
    seconds, _ = timed(lambda: submit(0))
    record("submit, the very first", seconds, size)
    raw: List[float] = []
    plans: List[float] = []
    ours: List[float] = []
    again: List[float] = []
    for number in range(1, rounds + 1):
        raw.append(timed(lambda: raw_upload(archive, f"{path}/raw.tar"))[0])
        files.delete(f"{root}/store/objects/{tree.digest}")
        seconds, plan = timed(planned)
        plans.append(seconds)
        ours.append(timed(lambda: staged(plan, 2 * number))[0])  # noqa: B023
        with counted() as calls:
            again.append(timed(lambda: submit(2 * number + 1))[0])  # noqa: B023
        for app in (2 * number, 2 * number + 1):
            jobfolder.remove(root, f"application_0_{app}")
    floor = statistics.median(raw)
    record("raw upload of the tar", floor, size)
    of_raw = round(floor / statistics.median(ours), 3)
    record("plan, digests known", statistics.median(plans), files=len(tree.entries))
    record(
        "stage",
        statistics.median(ours),
        size,
        of_raw=of_raw,
        rounds=rounds,
        **judged(of_raw, OF_RAW, least=True),
    )
    record("submit, all is there", statistics.median(again), name_node_calls=sorted(calls))


def main() -> None:
    """Make the environment, measure, and leave nothing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--files", type=int, default=34000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", default="hdfs:///tmp/staging-benchmark")
    arguments = parser.parse_args()
    files = filesystem(arguments.root)
    folder = tempfile.mkdtemp(prefix="staging-")
    os.environ["TONY_HOME"] = os.path.join(folder, "home")
    try:
        make_environment(os.path.join(folder, "venv"), arguments.files, arguments.mb * 1_000_000)
        time.sleep(GRAIN_NS / 1e9 + 0.5)  # younger files are not remembered
        files.mkdir(arguments.root, 0o700)
        measure(folder, arguments.root, arguments.rounds)
    finally:
        files.delete(arguments.root)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
