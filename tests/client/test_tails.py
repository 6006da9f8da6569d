"""The last lines of every task: bounded, masked, and of its last session."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from tests.client.scripted import APP, Scripted, status, task
from tony_core.client import tails
from tony_core.client.merge import from_page
from tony_core.client.tails import Tail, read_tails
from tony_core.job.load import JobArguments, load_job
from tony_core.job.mask import job_secrets
from tony_core.schedulers.port import LogRef, SchedulerError
from tony_core.view import JobView


def ran(name: str, container: str, **words: Any) -> Dict[str, Any]:
    runs = words.pop("runs", [{"session": 0, "container": container}])
    return task(name, container=container, session=runs[-1]["session"], runs=runs, **words)


def view(*tasks: Dict[str, Any]) -> JobView:
    return from_page({"app_id": APP, "state": "SUCCEEDED"}, tasks)


def written(**logs: bytes) -> Scripted:
    """``c1_stderr``: the log ``stderr`` of the container ``c1``."""
    scheduler = Scripted("", status())
    for name, data in logs.items():
        container, _, stream = name.partition("_")
        scheduler.logs[container, stream] = data
    return scheduler


def test_both_streams_of_every_task() -> None:
    scheduler = written(
        c1_stdout=b"".join(b"step %d\n" % n for n in range(50)),
        c1_stderr=b"warning\n",
        c2_stdout=b"without an end",
    )
    found = read_tails(scheduler, view(ran("worker:0", "c1"), ran("ps:0", "c2")), lines=2)
    assert found.tails == (
        Tail("worker:0", "stdout", ("step 48", "step 49")),
        Tail("worker:0", "stderr", ("warning",)),
        Tail("ps:0", "stdout", ("without an end",)),
    )
    assert found.text(APP) == [
        "last lines of worker:0 (stdout):",
        "  | step 48",
        "  | step 49",
        "last lines of worker:0 (stderr):",
        "  | warning",
        "last lines of ps:0 (stdout):",
        "  | without an end",
    ]
    assert read_tails(scheduler, view(ran("worker:0", "c1")), lines=0).tails == ()


def test_only_its_last_session() -> None:
    same = [
        {"session": 0, "container": "c1", "offsets": {"stdout": 0, "stderr": 0}},
        {"session": 1, "container": "c1", "offsets": {"stdout": 6, "stderr": 7}},
    ]
    moved = [{"session": 0, "container": "c1"}, {"session": 1, "container": "c2"}]
    scheduler = written(c1_stdout=b"first\nsecond\n", c1_stderr=b"failed\n", c2_stdout=b"other\n")
    assert read_tails(scheduler, view(ran("worker:0", "c1", runs=same))).tails == (
        Tail("worker:0", "stdout", ("second",)),
    )
    assert read_tails(scheduler, view(ran("worker:0", "c2", runs=moved))).tails == (
        Tail("worker:0", "stdout", ("other",)),
    )


def test_the_jobs_secrets_are_masked() -> None:
    """Such a log has more readers than the job's own."""
    job = load_job(
        JobArguments(
            executes="true",
            shell_env={"DB_PASSWORD": "correct horse", "PLAIN": "visible"},
            extra={"tony.worker.instances": "1"},
        ),
        env={},
    ).job
    scheduler = written(
        c1_stdout=b"correct \x1b[1mhorse visible\nHF_TOKEN=abcdef hdfs://u:pw@nn/\n"
    )
    tail = read_tails(scheduler, view(ran("worker:0", "c1")), job_secrets(job)).tails[0]
    assert tail.lines == ("******** visible", "HF_TOKEN=******** hdfs://********@nn/")


def test_progress_bars_and_endless_lines() -> None:
    bar = b"\x1b[32m 1%\r 50%\r\x1b[32m100%\x1b[0m\r\nafter\n"
    scheduler = written(c1_stdout=bar, c1_stderr=b"x" * (tails.MOST_BYTES * 3))
    found = read_tails(scheduler, view(ran("worker:0", "c1"))).tails
    assert found[0].lines == ("100%", "after")
    assert found[1].lines == ("x" * tails.LONGEST + " ...",)


def test_not_every_byte_of_a_large_log_is_read() -> None:
    class Counting(Scripted):
        size = 1 << 40
        read = 0

        def log_size(self, app_id: str, ref: LogRef, name: str) -> int:
            return self.size

        def read_log(
            self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
        ) -> bytes:
            count = max(0, min(limit, self.size - offset))
            self.read += count
            return b"." * count

    scheduler = Counting("", status())
    read_tails(scheduler, view(ran("worker:0", "c1")))
    assert scheduler.read <= 4 * tails.MOST_BYTES


def test_failed_tasks_come_before_others_where_not_all_fit() -> None:
    names = [f"worker:{n}" for n in range(6)]
    scheduler = written(**{f"c{n}_stdout": b"line\n" for n in range(6)})
    tasks = [
        ran(name, f"c{n}", state="failed" if n == 4 else "succeeded")
        for n, name in enumerate(names)
    ]
    found = read_tails(scheduler, view(*tasks), tasks=2)
    assert [tail.task for tail in found.tails] == ["worker:0", "worker:4"]
    assert found.left_out == ("worker:1", "worker:2", "worker:3", "worker:5")
    assert found.text(APP)[-1] == (
        f"no last lines of 4 more (worker:1, worker:2, worker:3, ...): tony logs {APP}"
    )


def test_it_ends_in_time() -> None:
    now = [0.0]

    class Slow(Scripted):
        def read_log(self, *args: Any, **words: Any) -> bytes:
            now[0] += 2.0
            return super().read_log(*args, **words)

    scheduler = Slow("", status())
    scheduler.logs = {(f"c{n}", "stdout"): b"line\n" for n in range(9)}
    tasks = [ran(f"worker:{n}", f"c{n}") for n in range(9)]
    found = read_tails(scheduler, view(*tasks), within_s=5.0, clock=lambda: now[0])
    assert len(found.tails) + len(found.left_out) == 9
    assert found.tails and found.left_out and now[0] < 40


def test_a_log_that_cannot_be_read_is_reported_once_a_task() -> None:
    class Gone(Scripted):
        def read_log(self, *args: Any, **words: Any) -> bytes:
            raise SchedulerError("the node is gone; token=abcdefgh")

    found = read_tails(Gone("", status()), view(ran("worker:0", "c1"), task("worker:1")))
    lines: List[str] = found.text(APP)
    assert lines == [
        "the log of worker:0 could not be read: the node is gone; token=********",
    ]


def test_a_log_that_grows_faster_than_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = written()
    reads: List[int] = []

    def read(app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20) -> bytes:
        reads.append(offset)
        assert len(reads) < 100, "it is read on and on"
        return (b"y\n" * limit)[:limit]

    monkeypatch.setattr(scheduler, "read_log", read)
    monkeypatch.setattr(scheduler, "log_size", lambda app_id, ref, name: 8)
    found = read_tails(scheduler, view(ran("worker:0", "c1")), lines=2)
    assert [tail.lines for tail in found.tails] == [("y", "y")] * 2
