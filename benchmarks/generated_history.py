"""Histories of many jobs, as masters leave them: for benchmarks, screenshots and trials.

    python benchmarks/generated_history.py FOLDER [--jobs 100000] [--big 1000] [--owners 20]

The jobs are of the last months, of several pipelines, users, queues and frameworks; most succeed.
The newest (``--big``: its tasks; 0: none) has run for an hour with metrics of every task each ten
seconds, as a master keeps them. As root, the folders belong to ``--owners`` users. The same
arguments give the same jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

from tony_core.history.layout import METRICS
from tony_core.history.metric_file import encode_series
from tony_core.history.metric_series import SeriesStore
from tony_core.schedulers.port import AppState
from tony_core.view import HISTORY, JobView, RunView, TaskView

FIRST_UID = 64300  # no users of a Debian system
MONTHS_S = 120 * 24 * 3600.0
NAMES = (
    *(
        "recommendation-train",
        "ranking-train",
        "speech-finetune",
        "vision-pretrain",
        "nightly-eval",
    ),
    *("forecast", "embedding-index", "hyperparameter-sweep", "fraud-retrain", "translation"),
)
QUEUES = ("default", "research", "production", "gpu", "adhoc")
FRAMEWORKS = ("tensorflow", "pytorch", "horovod", "jax", "standalone")
ERRORS = (
    "worker:1 exited with 1: ValueError: could not convert string to float: 'n/a'",
    "worker:0 was killed for memory: 8.1 GB of 8 GB",
    "ps:0 did not register within 300 s",
    "CUDA error: out of memory",
)
MACHINES = 200
CONFIG = """<?xml version="1.0"?>
<configuration>
<property><name>tony.application.name</name><value>{name}</value></property>
<property><name>tony.application.framework</name><value>{framework}</value></property>
<property><name>tony.worker.instances</name><value>{workers}</value></property>
<property><name>tony.worker.memory</name><value>{memory}m</value></property>
<property><name>tony.worker.gpus</name><value>1</value></property>
<property><name>learning.rate</name><value>{rate}</value></property>
</configuration>
"""


def generate(root: Path, jobs: int, big: int = 0, owners: int = 1, seed: int = 1) -> List[str]:
    """Write the histories below a folder; returns the ids, the oldest first."""
    now = float(int(time.time()))
    luck = random.Random(seed)
    root.mkdir(parents=True, exist_ok=True)
    ids = []
    for number in range(jobs):
        at = now - MONTHS_S * (1 - (number + 1) / (jobs + 1))
        app_id = f"application_{int(now - MONTHS_S)}000_{number + 1:06d}"
        job, story, metrics = make_job(luck, app_id, at, workers=luck.randint(1, 4))
        _write(root / app_id, job, story, metrics, luck, FIRST_UID + number % owners)
        ids.append(app_id)
    if big:
        app_id = f"application_{int(now - MONTHS_S)}000_{jobs + 1:06d}"
        job, story, metrics = make_job(luck, app_id, now - 3700, big, "SUCCEEDED", 3600.0)
        _write(root / app_id, job, story, metrics, luck, FIRST_UID)
        ids.append(app_id)
    return ids


def make_job(
    luck: random.Random,
    app_id: str,
    at: float,
    workers: int,
    state: str = "",
    running_s: float = 0.0,
) -> Tuple[JobView, List[Dict[str, Any]], Dict[str, Any]]:
    """One job: its view, its story and its metrics."""
    name = luck.choice(NAMES)
    state = state or luck.choices(("SUCCEEDED", "FAILED", "KILLED"), (85, 12, 3))[0]
    waiting, running = luck.expovariate(1 / 20), running_s or luck.lognormvariate(6.5, 1.0)
    begin, end = at + waiting, at + waiting + running
    error = luck.choice(ERRORS) if state == "FAILED" else ""
    memory = luck.choice((2048, 4096, 8192))
    series = SeriesStore()
    tasks = []
    beats = max(2, int(running / 10)) if running_s else 6
    # All tasks at each moment, as they report: the budget of points is one for all.
    for beat in range(beats):
        for index in range(workers):
            loss = 2.5 / (1 + beat) + luck.random() / 20
            measured = {"loss": loss, "rss_mb": memory * (0.4 + luck.random() / 4)}
            measured.update(gpu_percent=60 + 30 * luck.random(), cpu_percent=90 + luck.random())
            series.add(f"worker:{index}", begin + beat * running / beats, measured)
    for index in range(workers):
        task = f"worker:{index}"
        node = f"node{luck.randrange(MACHINES):03d}.example.org"
        container = f"container_{app_id[12:]}_01_{index + 2:06d}"
        tasks.append(_task(task, index, node, container, begin, end, state, error, series))
    dag = f"airflow.dag:{name}"
    job = JobView(
        app_id=app_id, state=AppState(state), source=HISTORY, name=name,
        user="from-the-file", queue=luck.choice(QUEUES), framework=luck.choice(FRAMEWORKS),
        session=0, progress=1.0, submitted=at, started=at + 1, finished=end + 2,
        diagnostics=error, root_cause={"task": "worker:0", "message": error} if error else {},
        tags=(dag, "airflow.task:train", f"team-{luck.randrange(8)}"), tasks=tuple(tasks),
        result={"accuracy": 0.7 + luck.random() / 4},
        roles={"worker": {"instances": workers, "memory_mb": memory, "vcores": 2, "gpus": 1}},
    )  # fmt: skip
    return job, _story(tasks, at, begin, end, state, error), series.to_json()


def _task(
    task: str,
    index: int,
    node: str,
    container: str,
    begin: float,
    end: float,
    state: str,
    error: str,
    series: SeriesStore,
) -> TaskView:
    has_failed = bool(error) and index == 0
    how = "succeeded" if state == "SUCCEEDED" else "failed" if has_failed else "killed"
    code = {"succeeded": 0, "failed": 1, "killed": 143}[how]
    return TaskView(
        task=task, role="worker", index=index, state=how, session=0, container=container,
        node=node, host=node, exit_code=code, message=error if has_failed else "",
        started=begin, ended=end, duration_s=end - begin, usage={"cpu_s": 0.9 * (end - begin)},
        reported={"loss": series.latest(task)["loss"]},
        runs=(RunView(0, container, node, "", how, code),),
    )  # fmt: skip


def _story(
    tasks: List[TaskView], at: float, begin: float, end: float, state: str, error: str
) -> List[Dict[str, Any]]:
    story: List[Dict[str, Any]] = []

    def tell(when: float, kind: str, text: str, task: str = "", **fields: Any) -> None:
        line = {"n": len(story) + 1, "time": round(when, 3), "kind": kind, "session": 0}
        line.update(text=text, fields=fields)
        story.append({**line, "task": task} if task else line)

    tell(at + 1, "session-started", "session 0 begins")
    tell(at + 1, "waiting", f"waiting for {len(tasks)} containers")
    for task in tasks:
        for when, name in ((begin - 0.5, "allocated"), (begin - 0.2, "registered"),
                           (begin, "running")):  # fmt: skip
            tell(when, "task-state", f"{task.task} {name}", task.task, state=name)
    for task in tasks:
        tell(end, "task-state", f"{task.task} {task.state}", task.task, state=task.state)
    if error:
        tell(end, "root-cause", error, tasks[0].task)
    tell(end + 2, "job-ended", f"the job ended: {state}")
    return story


def _write(
    folder: Path,
    job: JobView,
    story: List[Dict[str, Any]],
    metrics: Dict[str, Any],
    luck: random.Random,
    uid: int,
) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    summary = {"job": job.to_page_json(), "tasks": [task.to_json() for task in job.tasks]}
    workers = len(job.tasks)
    rate = luck.choice((0.1, 0.01, 0.001))
    config = CONFIG.format(
        name=job.name, framework=job.framework, workers=workers, memory=4096, rate=rate
    )
    lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in story)
    files = {
        "events-0001.jsonl": lines,
        "tony-final.xml": config,
        METRICS: encode_series(metrics).decode(),
        "summary.json": json.dumps(summary, separators=(",", ":")),
    }
    ended = job.finished or time.time()
    for name, text in files.items():
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.utime(folder / name, (ended, ended))
        if os.geteuid() == 0:
            os.chown(folder / name, uid, uid)
    if os.geteuid() == 0:
        os.chown(folder, uid, uid)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--big", type=int, default=1000)
    parser.add_argument("--owners", type=int, default=20)
    args = parser.parse_args()
    generate(args.folder, args.jobs, args.big, args.owners)


if __name__ == "__main__":
    main()
