"""The portal's index over many jobs: how long it takes to make, and to answer.

    python benchmarks/portal.py [--quick] [--runs 200] [--jobs 100000] [--histories FOLDER]
        [--hdfs hdfs:///FOLDER]

Jobs are generated below FOLDER where it has none, among them one of 1,000 tasks with an hour of
metrics (``--quick``: 2,000 jobs, one of 100 tasks). Measured is what is below a page: queries of
lists by viewers who see all, a twentieth, or hardly any of the jobs; the floor is a query of
SQLite's for one row. ``--hdfs`` reads the jobs that a folder there has, whatever they are.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from generated_history import FIRST_UID, generate
from measuring import cpu_s, figure, median, rss_kb, until

from tony_core.files.local import user_name
from tony_core.portal.index.index import Index
from tony_core.portal.index.rows import Query
from tony_core.portal.index.scanner import Scanner
from tony_core.portal.settings import HistoryLocation
from tony_core.portal.viewer import Viewer

REBUILD_BAR_S, PAGE_BAR_MS, NEW_JOB_BAR_S, MEMORY_BAR_MB = 120.0, 20.0, 2.0, 200.0
OWNERS = 20

ADMIN = Viewer("admin", is_admin=True)
OWNER = Viewer(user_name(FIRST_UID if os.geteuid() == 0 else os.geteuid()))
STRANGER = Viewer("stranger")

QUERIES: Dict[str, Tuple[Query, Viewer]] = {
    "the newest": (Query(), ADMIN),
    "the newest, of one owner": (Query(), OWNER),
    "the newest, of none": (Query(), STRANGER),
    "by GPU hours": (Query(sort="-gpu_hours"), ADMIN),
    "by name, of one owner": (Query(sort="name"), OWNER),
    "by memory, without an index": (Query(sort="-memory_gb_hours"), ADMIN),
    "failed ones": (Query(state=("FAILED",)), ADMIN),
    "of a queue and a state": (Query(queue="gpu", state=("KILLED",)), ADMIN),
    "a word that few have": (Query(q="_000042"), ADMIN),
    "a word that many have": (Query(q="train"), ADMIN),
    "two words": (Query(q="rank memory"), ADMIN),
    "two words, of one owner": (Query(q="rank memory"), OWNER),
    "a tag": (Query(tag="team-3"), ADMIN),
    "a week": (Query(since=time.time() - 7 * 86400), ADMIN),
}


def main() -> None:
    args = options()
    with tempfile.TemporaryDirectory() as folder:
        root = args.histories or Path(folder) / "history"
        if not args.hdfs and not root.exists():
            generate(root, args.jobs, args.big, OWNERS)
        place = HistoryLocation("generated", args.hdfs or str(root))
        index = Index(str(Path(folder) / "index"))
        scanner = Scanner([place], index, print)
        measure_rebuild(scanner, args.jobs)
        for name, (query, viewer) in QUERIES.items():
            measure(name, lambda q=query, v=viewer: index.page(q, v), args.runs)  # type: ignore[misc]
        measure("the tenth page", tenth_page(index), args.runs)
        measure("sums by user, for the first time", usage(index), args.runs)
        measure("the choices of filters", lambda: index.facets(OWNER), args.runs)
        if not args.hdfs:
            measure_new_job(index, root, args.runs)
        figure("the process's memory", rss_kb(os.getpid()) / 1024, "MB", bar=MEMORY_BAR_MB)
        size = sum(file.stat().st_size for file in (Path(folder) / "index").iterdir())
        figure("the index file", size / 1e6, "MB")
        scanner.close()
        index.close()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--histories", type=Path)
    parser.add_argument("--hdfs", default="")
    found = parser.parse_args()
    found.runs = found.runs or (20 if found.quick else 200)
    found.jobs = found.jobs or (2000 if found.quick else 100_000)
    found.big = 100 if found.quick else 1000
    return found


def measure_rebuild(scanner: Scanner, jobs: int) -> None:
    before, began = os.times(), time.monotonic()
    scanner.start()
    if not scanner.wait_until_read(1800.0):
        sys.exit(f"the index was not read within 1800 s: {scanner.states()}")
    took = time.monotonic() - began
    (state,) = scanner.states()
    after = os.times()
    figure(
        f"the index of {state.jobs} jobs is made", took, "s", bar=REBUILD_BAR_S,
        own_cpu_s=after.user + after.system - before.user - before.system,
        processes_cpu_s=after.children_user + after.children_system,
    )  # fmt: skip


def measure(name: str, ask: Callable[[], object], runs: int) -> None:
    ask()
    times = sorted(timed(ask) for _ in range(runs))
    figure(
        name, median(times), "ms", bar=PAGE_BAR_MS, floor=floor_ms(),
        floor_is="one row of a table of SQLite's", p99=times[int(len(times) * 0.99)], runs=runs,
    )  # fmt: skip


def timed(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return (time.perf_counter() - began) * 1000


def floor_ms() -> float:
    """One row by its key, in a table in memory."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 'x')")
        ask = "SELECT x FROM t WHERE id = 1"
        return statistics.median(timed(lambda: connection.execute(ask).fetchone()) for _ in "12345")


def tenth_page(index: Index) -> Callable[[], object]:
    query = Query(sort="-gpu_hours")
    for _ in range(9):
        query = query._replace(after=index.page(query, ADMIN).next)
    return lambda: index.page(query, ADMIN)


def usage(index: Index) -> Callable[[], object]:
    """Each time of another month, since answers are used again."""
    since = iter(range(0, 10**9, 60))
    return lambda: index.usage("user", ADMIN, since=float(next(since)))


def measure_new_job(index: Index, root: Path, runs: int) -> None:
    times: List[float] = []
    idle = cpu_s(os.getpid())
    time.sleep(10.0)
    share = (cpu_s(os.getpid()) - idle) / 10.0
    for number in range(min(10, runs)):
        (made,) = generate(root / "..", 1, 0, 1, seed=1000 + number)
        new = f"application_{int(time.time())}000_{900_000 + number}"
        source = (root / ".." / made).resolve()
        source.rename(source.parent / new)
        began = time.monotonic()
        (source.parent / new).rename(root / new)
        until(lambda new=new: index.rows(new, ADMIN), f"{new} on the list")  # type: ignore[misc]
        times.append(time.monotonic() - began)
    figure(
        "a new job is on the list", median(times), "s", bar=NEW_JOB_BAR_S, worst=max(times),
        runs=len(times),
    )  # fmt: skip
    figure("the scanner's share of a core while nothing happens", share, "cores")


if __name__ == "__main__":
    main()
