"""A warning reaches the program: by import tony, and by a signal; through a real executor."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Dict, List

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Ended, Noted, Preemption
from tony_executor.preemption_notice import PreemptionNotice, topmost_catching
from tony_executor.processes import Process


def program(folder: Path, text: str) -> str:
    """The command of a Python program that says what it sees, line by line."""
    path = folder / "program.py"
    head = """
        import os, signal, sys, threading, time
        import tony
        def say(*what):
            os.write(1, (" ".join(map(str, what)) + "\\n").encode())
    """
    path.write_text(textwrap.dedent(head) + textwrap.dedent(text))
    return f"{sys.executable} {path}"


def begin(master: Master, executor: Executor, folder: Path, text: str, shell: str = "{}") -> None:
    """Run a program in a new session, as this shell command; return once it has said something."""
    master.prepare()
    master.start(shell.format(program(folder, text)))
    master.until(lambda: output(executor))


def output(executor: Executor) -> List[str]:
    return executor.log("stdout").splitlines()


def test_a_callback_gets_the_time_left_and_the_exit_is_explained(
    master: Master, executor: Executor, tmp_path: Path
) -> None:
    begin(
        master, executor, tmp_path,
        """
        over = threading.Event()
        tony.on_preemption(lambda left: (say(f"{left:.0f}", tony.preemption().is_own), over.set()))
        say("up")
        over.wait(60)
        sys.exit(0)
        """,
    )  # fmt: skip
    master.send(Preemption(0, seconds=15.0, own=False))
    ended = master.expect(Ended)
    assert output(executor) == ["up", "15 False"]
    assert (ended.exit_code, ended.cause, ended.preempted) == (0, "exited", True)


def test_a_program_that_never_registers_goes_on_and_its_exit_is_its_own(
    master: Master, executor: Executor, tmp_path: Path
) -> None:
    begin(
        master, executor, tmp_path,
        f"""
        say("up", threading.active_count())
        while not os.path.exists({str(tmp_path / "over")!r}):
            time.sleep(0.01)
        say(threading.active_count())
        """,
    )  # fmt: skip
    master.send(Preemption(0, seconds=15.0))
    master.wait(0.5)
    (tmp_path / "over").touch()
    ended = master.expect(Ended)
    assert output(executor) == ["up 1", "1"], "no thread, and no signal"
    assert (ended.exit_code, ended.signal, ended.preempted) == (0, 0, False)


def test_later_warnings_a_withdrawal_and_several_processes(
    master: Master, executor: Executor, tmp_path: Path
) -> None:
    """Forked children are not called, those that call themselves are; late ones see it at once."""
    begin(
        master, executor, tmp_path,
        f"""
        def warned(left):
            say("warned", os.getpid() == first, left is None)
        first = os.getpid()
        tony.on_preemption(warned, lambda: say("withdrawn"))
        tony.on_preemption(warned, lambda: say("withdrawn, too"))
        tony.on_preemption(warned)
        tony.on_preemption(warned)
        @tony.on_preemption
        def broken(left):
            raise RuntimeError("a callback of the user's")
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        other = os.fork()
        if not other:
            tony.on_preemption(lambda left: say("child", left is None))
            say("child up")
            while tony.preemption() is None:
                time.sleep(0.01)
            time.sleep(60)
        while not os.path.exists({str(tmp_path / "over")!r}):
            time.sleep(0.01)
        tony.on_preemption(lambda left: say("late", left is None))
        time.sleep(0.5)
        os.kill(child, 9)
        os.kill(other, 9)
        sys.exit(5 if tony.preemption().seconds_left is None else 0)
        """,
    )  # fmt: skip
    master.until(lambda: "child up" in output(executor))
    master.send(Preemption(0, seconds=0.1))
    first = ["child False", "child up"] + 3 * ["warned True False"]
    master.until(lambda: sorted(output(executor)) == first)
    master.send(Preemption(0, withdrawn=True))
    master.until(lambda: "withdrawn, too" in output(executor))
    before = len(output(executor))
    master.send(Preemption(0, seconds=None))
    more = ["child True"] + 3 * ["warned True True"]
    master.until(lambda: sorted(output(executor)[before:]) == more)
    (tmp_path / "over").touch()
    ended = master.expect(Ended)
    assert output(executor)[-1] == "late True"
    assert (ended.exit_code, ended.preempted) == (5, True)
    assert executor.log("stderr").count("RuntimeError: a callback of the user's") == 2


def test_what_was_withdrawn_and_what_is_of_another_session_explains_nothing(
    master: Master, executor: Executor, tmp_path: Path
) -> None:
    begin(
        master, executor, tmp_path,
        """
        seen = []
        tony.on_preemption(seen.append, lambda: os._exit(3))
        say("up")
        time.sleep(60)
        """,
    )  # fmt: skip
    master.send(Preemption(1, seconds=1.0))
    master.send(Preemption(0, 1, seconds=1.0))
    master.send(Preemption(0, seconds=1.0))
    master.wait(0.3)
    master.send(Preemption(0, withdrawn=True))
    ended = master.expect(Ended)
    assert (ended.exit_code, ended.preempted) == (3, False)
    assert len(list(executor.work.glob("preemption-*"))) == 3, "two notices, and the next"


def test_the_next_session_begins_without_a_notice(
    master: Master, executor: Executor, tmp_path: Path
) -> None:
    master.prepare()
    command = program(tmp_path, "say(tony.preemption()); tony.on_preemption(say); time.sleep(60)")
    master.start(command)
    master.until(lambda: output(executor))
    master.send(Preemption(0, seconds=30.0))
    master.until(lambda: len(output(executor)) == 2)
    master.stop()
    master.prepare(session=1)
    master.start(command, session=1)
    master.until(lambda: len(output(executor)) == 3)
    assert output(executor)[2] == "None"
    master.stop(session=1)
    assert not master.received(Ended, preempted=True), "we ended them"


# ------------------------------------------------------------------ the signal


def test_the_signal_reaches_the_process_that_handles_it_and_no_forked_child(
    master: Master, executor: Executor, tmp_path: Path
) -> None:
    # A shell above it, and a process beside it that the signal would end.
    begin(
        master, executor, tmp_path,
        """
        def handle(number, frame):
            say("signal", os.getpid() == first)
            if os.getpid() == first:
                os.kill(child, 9)
                os._exit(0)
        first = os.getpid()
        signal.signal(signal.SIGUSR1, handle)
        child = os.fork()
        if child:
            say("up")
        time.sleep(60)
        """, "sleep 60 & {}; code=$?; kill %1 && exit $code",
    )  # fmt: skip
    master.send(Preemption(0, seconds=9.0, signal="SIGUSR1"))
    ended = master.expect(Ended)
    assert output(executor) == ["up", "signal True"]
    assert (ended.exit_code, ended.preempted) == (0, True)
    (note,) = master.received(Noted)
    assert note.text.startswith("SIGUSR1 sent to its program (")


def test_a_signal_that_no_process_handles_is_not_sent_unless_to_all(
    master: Master, executor: Executor
) -> None:
    master.prepare()
    running = master.start("sleep 60")
    master.until(lambda: b"sleep" in Path(f"/proc/{running.pid}/cmdline").read_bytes()[:6])
    master.send(Preemption(0, seconds=9.0, signal="SIGTERM"))
    (note,) = master.until(lambda: master.received(Noted))
    assert note.text == "no process of its program handles SIGTERM: it was not sent"
    assert not master.received(Ended)
    master.send(Preemption(0, seconds=5.0, signal="SIGTERM", signal_all=True))
    ended = master.expect(Ended)
    assert (ended.signal, ended.preempted) == (signal.SIGTERM, True)


def process(pid: int, parent: int) -> Process:
    return Process(pid, "p", "S", parent, 0.0, 1, 1.0)


def test_the_topmost_of_those_that_handle_a_signal() -> None:
    tree = [process(1, 0), process(2, 1), process(3, 2), process(4, 3), process(5, 1)]

    def chosen(*catching: int) -> List[int]:
        return [each.pid for each in topmost_catching(tree, 10, lambda pid, _: pid in catching)]

    assert chosen() == []
    assert chosen(2, 3, 4) == [2]
    assert chosen(3, 5) == [3, 5]
    assert chosen(4, 2, 5) == [2, 5]
    assert chosen(1, 2, 3, 4, 5) == [1]


def test_a_full_disk_and_a_folder_that_is_gone_cost_the_notice_only(tmp_path: Path) -> None:
    lines: List[str] = []
    notice = PreemptionNotice(lines.append)
    notice.begin(str(tmp_path / "gone" / "preemption"))
    assert notice.give(Preemption(0, seconds=1.0), []) == ("", "")
    assert lines and "No such file" in lines[0]
    notice.close()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"until": "x"}', '{"until": true, "own": 3}'])
def test_whatever_stands_in_a_notice_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    import tony_preemption

    monkeypatch.setenv("TONY_PREEMPTION_FILE", str(tmp_path / "n"))
    monkeypatch.delenv("TONY_REPORT_FILE", raising=False)
    (tmp_path / "n.1").write_text(content)
    watch = tony_preemption._Watch()
    monkeypatch.setattr(watch, "_run", lambda what, name: None)
    found = watch.current()
    assert found is None or (found.seconds_left is None and found.is_own)
    assert (found is None) is (not content.startswith('{"'))


def test_outside_of_a_job_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    import tony

    for name in ("TONY_PREEMPTION_FILE", "TONY_REPORT_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert tony.preemption() is None
    assert tony.on_preemption(print) is print
    with pytest.raises(TypeError, match="3 cannot be called"):
        tony.on_preemption(3)  # type: ignore[arg-type]


def test_what_the_program_reports_of_it_is_no_metric(tmp_path: Path) -> None:
    from tony_executor.monitoring.telemetry import ReportFile

    path = tmp_path / "report"
    lines: List[Dict[str, object]] = [{"preemption": 1}, {"preemption": True, "step": 3}]
    path.write_text("".join(json.dumps(line) + os.linesep for line in lines[:1]))
    file = ReportFile(str(path), 0)
    assert file.read_new() is None and not file.has_noticed
    path.write_text("".join(json.dumps(line) + os.linesep for line in lines))
    found = file.read_new()
    assert found is not None and found.step == 3 and file.has_noticed
