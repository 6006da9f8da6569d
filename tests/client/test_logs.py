"""Every line once, across restarts, containers and chunk borders."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.scripted import APP, PageServer, Scripted, status, task
from tony_core.client import logs
from tony_core.client.errors import UsageError
from tony_core.client.logs import Line, LogFile, TaskLogReader, read_logs
from tony_core.client.merge import from_page, with_containers
from tony_core.schedulers.port import AppState, LogRef, SchedulerError

REF = LogRef("c1")


def view(*tasks: Dict[str, Any]) -> Any:
    return from_page({"app_id": APP, "state": "RUNNING"}, tasks)


def texts(lines: List[Line]) -> List[str]:
    return [f"{line.task} {line.stream} {line.text}" for line in lines]


class Measured(Scripted):
    """One that can say how long a log is."""

    def log_size(self, app_id: str, ref: LogRef, name: str) -> int:
        if self.unreachable is not None:
            raise SchedulerError(self.unreachable)
        return len(self.logs.get((ref.container_id, name), b""))


def log_file(data: bytes, measured: bool = False) -> LogFile:
    scheduler = (Measured if measured else Scripted)("", status())
    scheduler.logs["c1", "stdout"] = data
    return LogFile(scheduler, APP, REF, "stdout")


class TestOneFile:
    @given(
        st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=8)),
        st.lists(st.integers(0, 60), max_size=6),
    )
    def test_growing_by_any_pieces_gives_every_line_once(
        self, lines: List[str], cuts: List[int]
    ) -> None:
        data = "".join(f"{line}\n" for line in lines).encode() + b"rest"
        file = log_file(b"")
        found: List[str] = []
        for end in [*sorted(cuts), len(data)]:
            file._scheduler.logs["c1", "stdout"] = data[:end]  # type: ignore[attr-defined]
            found += file.lines()
        assert found == lines
        assert list(file.rest()) == ["rest"]
        assert list(file.rest()) == []

    @given(st.integers(0, 30), st.integers(0, 40), st.booleans(), st.integers(1, 7), st.booleans())
    def test_the_last_lines(
        self, count: int, wanted: int, ended: bool, chunk: int, measured: bool
    ) -> None:
        lines = [f"line {n}" * (n % 3) for n in range(count)]
        data = "\n".join(lines).encode() + (b"\n" if ended and lines else b"")
        if not ended and lines and not lines[-1]:
            lines = lines[:-1]  # an empty line without an end is none
        file = log_file(data, measured)
        before, logs.CHUNK = logs.CHUNK, chunk
        try:
            file.skip_to_last(wanted)
            found = [*file.lines(), *file.rest()]
        finally:
            logs.CHUNK = before
        assert found == (lines[-wanted:] if wanted else [])

    def test_an_unknown_size_is_a_problem(self) -> None:
        file = log_file(b"a\n", measured=True)
        file._scheduler.unreachable = "its node is away"  # type: ignore[attr-defined]
        file.skip_to_last(1)
        assert file.problem == "its node is away"

    def test_bytes_that_are_no_text_and_line_ends_of_windows(self) -> None:
        assert list(log_file(b"a\xff\xfeb\r\nc\n").lines()) == ["a��b", "c"]

    def test_a_line_that_never_ends_comes_in_pieces(self) -> None:
        file = log_file(b"x" * (logs.LONGEST_LINE + 5))
        assert [len(text) for text in file.lines()] == [logs.LONGEST_LINE]
        assert list(file.rest()) == ["xxxxx"]


class TestTheReader:
    def reader(self, scheduler: Scripted, **words: Any) -> TaskLogReader:
        return TaskLogReader(scheduler, APP, **words)

    def scheduler(self) -> Scripted:
        made = Scripted("", status())
        for container in ("c1", "c2", "c3"):
            made.logs[container, "stdout"] = f"out of {container}\n".encode()
            made.logs[container, "stderr"] = f"err of {container}\n".encode()
            made.logs[container, "executor.log"] = f"ours of {container}\n".encode()
        made.logs["", "master-1.stderr"] = b"the master\n"
        return made

    TASKS = (
        task("worker:0", container="c1", runs=[{"session": 0, "container": "c1"}]),
        task(
            "worker:1",
            container="c3",
            session=1,
            runs=[{"session": 0, "container": "c2"}, {"session": 1, "container": "c3"}],
        ),
    )

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ({"tasks": ["worker:0"]}, ["worker:0 stdout out of c1", "worker:0 stderr err of c1"]),
            (
                {"tasks": ["worker:1"], "stream": "stdout"},
                ["worker:1 stdout out of c2", "worker:1 stdout out of c3"],
            ),
            (
                {"tasks": ["worker"], "stream": "executor"},
                [
                    "worker:0 executor.log ours of c1",
                    "worker:1 executor.log ours of c2",
                    "worker:1 executor.log ours of c3",
                ],
            ),
            ({"session": 1, "stream": "stderr"}, ["worker:1 stderr err of c3"]),
            ({"tasks": ["am"]}, ["am master-1.stderr the master"]),
        ],
    )
    def test_what_is_chosen(self, words: Dict[str, Any], expected: List[str]) -> None:
        reader = self.reader(self.scheduler(), **words)
        reader.update(view(*self.TASKS))
        assert texts(list(reader.read(last=True))) == expected

    def test_masters_that_are_tasks_too_come_once(self) -> None:
        """The view of a job that only the scheduler still knows."""
        scheduler = self.scheduler()
        scheduler.logs["c9", "stderr"] = scheduler.logs["", "master-1.stderr"]
        known = with_containers(view(*self.TASKS), [("am", LogRef("c9"))])
        for words in ({"tasks": ["am"]}, {"tasks": ["am", "worker:0"], "stream": "stderr"}):
            reader = self.reader(scheduler, **words)
            reader.update(known)
            found = [line.text for line in reader.read(last=True)]
            assert found.count("the master") == 1

    def test_a_master_that_just_starts_is_waited_for(self) -> None:
        class Starting(Scripted):
            def list_logs(self, app_id: str, ref: LogRef) -> List[str]:
                if not self.logs:
                    raise SchedulerError("its container is being prepared")
                return super().list_logs(app_id, ref)

        scheduler = Starting("", status())
        reader = self.reader(scheduler, tasks=["am"])
        reader.update(view())
        assert list(reader.read()) == []
        assert reader.problems == ["the master's: its container is being prepared"]
        scheduler.logs["", "master-1.stdout"] = b"here\n"
        reader.update(view())
        assert [line.text for line in reader.read()] == ["here"]
        assert reader.problems == []

    def test_only_the_masters_logs_come_when_no_others_are_known(self) -> None:
        scheduler = self.scheduler()
        for state, expected in ((AppState.RUNNING, []), (AppState.FAILED, ["out of c3"])):
            known = with_containers(view(), [("am", LogRef("c3"))])._replace(state=state)
            reader = self.reader(
                scheduler, tasks=["worker"] if not expected else [], stream="stdout"
            )
            reader.update(known)  # a task that is still to come is no unknown one
            assert [line.text for line in reader.read(last=True)] == expected

    @staticmethod
    def warm(*offsets: Dict[str, int]) -> Dict[str, Any]:
        """A task whose sessions, one for each of these, were all in one container."""
        runs = [
            {"session": session, "container": "c1", "offsets": each}
            for session, each in enumerate(offsets)
        ]
        return task("worker:0", container="c1", session=len(offsets) - 1, runs=runs)

    @pytest.mark.parametrize(
        ("session", "expected"),
        [(0, ["a", "b"]), (1, []), (2, ["c", "d"]), (3, ["e"]), (4, [])],
    )
    @pytest.mark.parametrize("tail", [None, 1])
    def test_a_session_of_a_file_that_several_wrote(
        self, session: int, expected: List[str], tail: Optional[int]
    ) -> None:
        scheduler = self.scheduler()
        scheduler.logs["c1", "stdout"] = b"a\nbc\nd\ne\n"
        # The program of session 1 was not started.
        runs = self.warm({"stdout": 0}, {}, {"stdout": 3}, {"stdout": 7})
        reader = self.reader(scheduler, session=session, stream="stdout", tail=tail)
        reader.update(view(runs))
        found = [line.text for line in reader.read(last=True)]
        assert found == (expected[-1:] if tail else expected)

    def test_without_offsets_the_whole_file_is_any_sessions(self) -> None:
        reader = self.reader(self.scheduler(), session=1, stream="stdout")
        reader.update(view(self.warm({}, {})))
        assert [line.text for line in reader.read(last=True)] == ["out of c1"]
        # Our own log is not cut.
        reader = self.reader(self.scheduler(), session=1, stream="executor")
        reader.update(view(self.warm({"stdout": 0}, {"stdout": 3})))
        assert [line.text for line in reader.read(last=True)] == ["ours of c1"]

    def test_following_one_session_to_its_end_and_no_further(self) -> None:
        scheduler = self.scheduler()
        scheduler.logs["c1", "stdout"] = b"a\nb"
        reader = self.reader(scheduler, session=0, stream="stdout")
        reader.update(view(self.warm({"stdout": 0})))
        assert [line.text for line in reader.read()] == ["a"]
        reader.update(view(self.warm({"stdout": 0}, {})))
        scheduler.logs["c1", "stdout"] += b"c\nd\n"
        assert list(reader.read()) == [], "its owner is not known yet"
        reader.update(view(self.warm({"stdout": 0}, {"stdout": 4})))
        assert [line.text for line in reader.read()] == ["bc"]
        assert list(reader.read(last=True)) == []

    def test_a_session_that_has_not_begun_is_waited_for(self) -> None:
        scheduler = self.scheduler()
        reader = self.reader(scheduler, session=1, stream="stdout", tail=1)
        reader.update(view(self.warm({"stdout": 0})))
        reader.update(view(self.warm({"stdout": 0}, {})))
        assert list(reader.read()) == []
        scheduler.logs["c1", "stdout"] += b"x\ny\n"
        reader.update(view(self.warm({"stdout": 0}, {"stdout": 10})))
        assert [line.text for line in reader.read()] == ["x", "y"]

    def test_a_task_that_is_not_there(self) -> None:
        reader = self.reader(self.scheduler(), tasks=["wroker"])
        with pytest.raises(UsageError, match=r"no task 'wroker'.*worker.*worker:0"):
            reader.update(view(*self.TASKS))

    def test_a_container_that_comes_later_is_read_from_its_beginning(self) -> None:
        reader = self.reader(self.scheduler(), tasks=["worker:1"], stream="stdout", tail=0)
        early = task("worker:1", container="c2", runs=[{"session": 0, "container": "c2"}])
        reader.update(view(early))
        assert list(reader.read()) == []
        reader.update(view(*self.TASKS))
        assert texts(list(reader.read())) == ["worker:1 stdout out of c3"]
        assert list(reader.read(last=True)) == []


class TestFollowing:
    def collect(self, scheduler: Scripted, **words: Any) -> List[Line]:
        return list(read_logs(scheduler, APP, follow=True, **words))

    def test_to_the_end_over_a_restart(self) -> None:
        with PageServer() as page:
            scheduler = Scripted("", status(page_url=page.url))
            page.tasks = [task(container="c1", runs=[{"session": 0, "container": "c1"}])]
            scheduler.logs["c1", "stdout"] = b"step 1\nste"

            def run_job() -> None:
                time.sleep(0.5)
                scheduler.logs["c1", "stdout"] += b"p 2\n"
                time.sleep(0.3)
                # The container goes, another comes; what it wrote last was never polled.
                scheduler.logs["c1", "stdout"] += b"died"
                runs = [{"session": 0, "container": "c1"}, {"session": 1, "container": "c2"}]
                page.tasks = [task(container="c2", session=1, runs=runs)]
                scheduler.logs["c2", "stdout"] = b"step 2 again\n"
                time.sleep(0.6)
                scheduler.logs["c2", "stdout"] += b"done\n"
                scheduler.set(state=AppState.SUCCEEDED)

            thread = threading.Thread(target=run_job)
            thread.start()
            found = self.collect(scheduler)
            thread.join()
        assert [line.text for line in found if line.container == "c1"] == [
            "step 1",
            "step 2",
            "died",
        ]
        # The page was gone at once and there is no history: the last view knew c2 or not.
        assert [line.text for line in found if line.container == "c2"] in (
            [],
            ["step 2 again", "done"],
        )

    def test_an_ended_job_is_read_and_that_is_all(self) -> None:
        scheduler = Scripted("", status(state=AppState.SUCCEEDED))
        assert self.collect(scheduler) == []
        assert scheduler.asked == 1


def test_what_cannot_be_read_is_reported() -> None:

    class Refusing(Scripted):
        def read_log(self, *args: Any, **words: Any) -> bytes:
            raise SchedulerError("logs are being aggregated")

    with PageServer() as page:
        scheduler = Refusing("", status(page_url=page.url))
        page.tasks = [task(container="c1")]
        problems: List[str] = []
        found = list(read_logs(scheduler, APP, stream="stdout", problems=problems))
    assert found == []
    assert problems == ["stdout of worker:0 (c1): logs are being aggregated"]


@pytest.mark.parametrize(
    ("state", "user", "words"),
    [
        (AppState.SUCCEEDED, "", ["there is no history of it that can be read at /gone/history"]),
        (AppState.RUNNING, "", ["its page does not answer, and there is no history"]),
        (AppState.RUNNING, "eve", ["its page does not answer", "the job is ann's"]),
        (AppState.ACCEPTED, "", []),
    ],
)
def test_that_no_tasks_are_known_is_reported(state: AppState, user: str, words: List[str]) -> None:
    scheduler = Scripted("/gone", status(state=state)._replace(user="ann", page_url=None))
    scheduler.user = user
    problems: List[str] = []
    assert list(read_logs(scheduler, APP, problems=problems)) == []
    assert len(problems) == bool(words)
    assert all(word in problems[0] for word in words)
