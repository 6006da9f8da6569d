"""What a master of 1,000 tasks pays for what it keeps and shows: history, Prometheus, stall watch.

    python benchmarks/master_cost.py [--quick] [--tasks 1000] [--seconds 60] [--runs 3]

The master is real, in a process of its own, with simulated executors as in ``core_scale.py``: each
sends a heartbeat each second. Four masters take turns: the floor gets heartbeats alone, and records
nothing while the job runs. The others get four measures and a report of the program with
three values as well, of each executor every five seconds, or as seldom as the master says (of 1,000
tasks: every 20 s): one that only keeps them in memory, one that writes history as every job's does,
and one that is scraped each 15 seconds too, with ``tony.task.stall-timeout`` set.

An answer to Prometheus is timed by the scraper, in a process of its own. What it takes of the
processor is what the master spent meanwhile, less what it spends in that time without. Beside
each scrape another connection asks for a small page, just after it: how long that waits is how long
the master does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import multiprocessing
import os
import time
from typing import Any, Dict, Iterator, List, NamedTuple
from urllib.parse import urlsplit

from measuring import by_turns, cpu_s, exact_cpu_s, figure, master_bar_mb, median, rss_kb
from simulated import Gang, enough_files
from simulated_master import STALL_WATCH, WITHOUT_HISTORY

EVERY_BEATS = 5  # heartbeats, measures and a report
EVERY_S, QUICK_EVERY_S = 15.0, 2.0  # scrapes
SOON_S = 0.005  # from a scrape to the small page: it is being answered then
CALM_S = 5.0
CORE_BAR, ANSWER_BAR_S = 0.02, 0.1
HEARTBEATS, SAMPLES = "heartbeats alone", "samples, nothing recorded"
HISTORY, ALL = "samples and history", "samples, history, scrapes and stall watch"
OPTIONS = {
    HEARTBEATS: (WITHOUT_HISTORY,), SAMPLES: (WITHOUT_HISTORY,), HISTORY: (), ALL: (STALL_WATCH,)
}  # fmt: skip


class Answer(NamedTuple):
    """An answer to a scrape, as its process saw it."""

    began: float
    took_s: float
    other_s: float  # what a request just after it took
    spent_s: float  # processor time of the master until then
    spent_before_s: float
    size: int
    samples: int


@contextlib.contextmanager
def scraper(page_url: str, pid: int, every_s: float) -> Iterator[List[Answer]]:
    """Scrape from another process; the answers are in the list afterwards."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    host = urlsplit(page_url).netloc
    process = multiprocessing.get_context("spawn").Process(
        target=scrape, args=(host, pid, every_s, theirs), daemon=True
    )
    process.start()
    answers: List[Answer] = []
    try:
        yield answers
        ours.send("end")
        answers += ours.recv()
    finally:
        process.terminate()
        process.join()


def scrape(host: str, pid: int, every_s: float, pipe: Any) -> None:
    """Ask for the figures, each time by a new connection, until there is word to end."""
    answers: List[Answer] = []
    while not pipe.poll(every_s):
        connection, beside = (http.client.HTTPConnection(host, timeout=60) for _ in range(2))
        beside.connect()
        before, began = exact_cpu_s(pid), time.monotonic()
        connection.request("GET", "/metrics")
        time.sleep(SOON_S)
        asked = time.monotonic()
        beside.request("GET", "/none")
        beside.getresponse().read()
        other = time.monotonic() - asked
        answer = connection.getresponse()
        text = answer.read()
        took, spent = time.monotonic() - began, exact_cpu_s(pid)
        assert answer.status == 200, answer.status
        samples = sum(not line.startswith(b"#") for line in text.splitlines())
        answers.append(Answer(began, took, other, spent, before, len(text), samples))
        connection.close()
        beside.close()
    pipe.send(answers)


def spent_on(answers: List[Answer], cores: float) -> List[float]:
    """The processor time of each; ``cores`` is what the master takes without being asked."""
    return [each.spent_s - each.spent_before_s - cores * each.took_s for each in answers]


def sample(tasks: int, seconds: float, way: str, every_s: float) -> Dict[str, Any]:
    """One job: the master's share of a core while it runs, and what its history holds then."""
    with Gang("jax", tasks, *OPTIONS[way]) as gang:
        gang.executors.measures_every = 0 if way == HEARTBEATS else EVERY_BEATS
        gang.beat(min(CALM_S, seconds / 3))
        with contextlib.ExitStack() as stack:
            answers: List[Answer] = []
            if way == ALL:
                answers = stack.enter_context(scraper(gang.master.page_url, gang.pid, every_s))
            began, spent = time.monotonic(), cpu_s(gang.pid)  # of ended threads as well
            gang.beat(seconds)
            cores = (cpu_s(gang.pid) - spent) / (time.monotonic() - began)
        history = gang.folder / "history"
        found = {
            "cores": cores, "rss_kb": rss_kb(gang.pid), "answers": answers,
            "bytes": sum(path.stat().st_size for path in history.glob("*")),
            "points_bytes": sum(path.stat().st_size for path in history.glob("metrics-*")),
        }  # fmt: skip
        return {**found, "end_s": gang.end()}


def report(tasks: int, seconds: float, runs: int, found: Dict[str, List[Dict[str, Any]]]) -> None:
    """Medians over the runs; of answers over all of them."""

    def of(way: str, key: str) -> float:
        return median([each[key] for each in found[way]])

    floor, floor_is = of(HEARTBEATS, "cores"), f"a master of {tasks} tasks with heartbeats alone"
    before = floor
    for way in (SAMPLES, HISTORY, ALL):
        cores = of(way, "cores")
        figure(
            f"{way} of {tasks} tasks: a master's share of a core", cores, "cores",
            floor=floor, floor_is=floor_is,
            bar=CORE_BAR, bar_is=f"{CORE_BAR} cores over the floor",
            held=cores - floor <= CORE_BAR, each=[each["cores"] for each in found[way]],
            floors=[each["cores"] for each in found[HEARTBEATS]],
            over_one_before=cores - before, runs=runs, seconds=seconds,
            machine_cores=os.cpu_count(),
        )  # fmt: skip
        before = cores
    answers: List[Answer] = [answer for each in found[ALL] for answer in each["answers"]]
    for name, times, bar in (
        ("the master's processor time", spent_on(answers, of(HISTORY, "cores")), ANSWER_BAR_S),
        ("from the question on", [each.took_s for each in answers], None),
        ("a small page asked for just after it", [each.other_s for each in answers], None),
    ):  # fmt: skip
        figure(
            f"an answer to Prometheus of {tasks} tasks: {name}", median(times), "s", bar=bar,
            most=max(times), answers=len(answers), megabytes=answers[-1].size / 1e6,
            samples=answers[-1].samples,
        )  # fmt: skip
    figure(
        f"{ALL} of {tasks} tasks: the master's memory", of(ALL, "rss_kb") / 1024, "MB",
        floor=of(HEARTBEATS, "rss_kb") / 1024, floor_is=floor_is,
        bar=master_bar_mb(tasks), history_alone=of(HISTORY, "rss_kb") / 1024,
    )  # fmt: skip
    figure(
        f"history of {tasks} tasks on disk after {seconds:g} s", of(ALL, "bytes") / 1024, "KB",
        points_kb=of(ALL, "points_bytes") / 1024,
    )  # fmt: skip
    figure(
        f"{ALL} of {tasks} tasks: from the last program's end to the job's", of(ALL, "end_s"), "s",
        floor=of(HEARTBEATS, "end_s"), floor_is=floor_is,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it work?")
    parser.add_argument("--tasks", type=int, help="default 1000")
    parser.add_argument("--seconds", type=float, help="of each sample (default 60)")
    parser.add_argument("--runs", type=int, help="how many of each (default 3)")
    parser.add_argument("--every", type=float, help="seconds between scrapes (default 15)")
    words = parser.parse_args()
    tasks, seconds, runs, every_s = (
        words.tasks or (50 if words.quick else 1000),
        words.seconds or (6.0 if words.quick else 60.0),
        words.runs or (1 if words.quick else 3),
        words.every or (QUICK_EVERY_S if words.quick else EVERY_S),
    )
    if seconds < 2 * every_s:
        parser.error(
            f"a sample of {seconds:g} s may have no scrape each {every_s:g} s, whose process has"
            f" to start first: let it take {2 * every_s:g} s"
        )
    enough_files(tasks)
    ways = {way: lambda way=way: sample(tasks, seconds, way, every_s) for way in OPTIONS}
    report(tasks, seconds, runs, by_turns(runs, ways, warm=0))


if __name__ == "__main__":
    main()
