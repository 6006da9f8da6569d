"""Shells beside a real program in a real executor: what they have, and that nothing is left."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any, List, NoReturn

import pytest

from tests.executor.standin import Executor, Master, alive, pids_in
from tests.executor.test_stopping import gone
from tony_core.protocol.messages import (
    CloseStream,
    Ended,
    OpenStream,
    ResizeTerminal,
    Stop,
    StreamClosed,
    StreamData,
    StreamOpened,
    StreamTaken,
)
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.tunnel import PIECE, WINDOW, Refused, pack_data, unpack_data
from tony_executor.streams import (
    DRAIN_S,
    ProgramPlace,
    Refusal,
    Streams,
    connect_notebook,
)

# Leaves a child in a session of its own that ignores every signal it can.
STRAY = "setsid bash -c 'trap \"\" TERM HUP INT; echo $$; exec 1>&- 2>&- 0<&-; sleep 300' &\n"


@pytest.fixture
def master() -> Any:
    made = Master(shell_enabled=True)
    yield made
    made.close()


class Shell:
    """The client's end of a stream; takes what comes."""

    def __init__(self, master: Master, number: int, *command: str, terminal: bool = False) -> None:
        self._master = master
        self.number = number
        self._taken = 0
        size = {"rows": 33, "columns": 77, "term": "xterm"} if terminal else {}
        master.send(
            OpenStream(number, "worker:0", "shell", list(command), terminal, **size)  # type: ignore[arg-type]
        )

    def text(self, error: bool = False) -> str:
        data = b"".join(
            unpack_data(m.data)
            for m in self._master.received(StreamData, stream=self.number, error=error)
        )
        self.take()
        return data.decode()

    def take(self) -> None:
        pieces = self._master.received(StreamData, stream=self.number)
        total = sum(len(unpack_data(m.data)) for m in pieces)
        if total > self._taken:
            self._master.send(StreamTaken(self.number, total - self._taken))
            self._taken = total

    def type(self, text: str, end: bool = False) -> None:
        self._master.send(StreamData(self.number, pack_data(text.encode()), end=end))

    def until(self, text: str) -> str:
        return str(self._master.until(lambda: self.text() if text in self.text() else ""))

    def closed(self) -> StreamClosed:
        def found() -> List[StreamClosed]:
            self.take()
            return self._master.received(StreamClosed, stream=self.number)

        ended: StreamClosed = self._master.until(found)[0]
        return ended


def started(master: Master, command: str = "sleep 300") -> None:
    master.prepare()
    master.start(command, env={"COLOUR": "blue"})


def test_a_command_has_the_programs_place_and_reports_its_exit(
    master: Master, executor: Executor
) -> None:
    started(master)
    text = 'echo "$COLOUR $TASK_INDEX"; pwd; echo "${TONY_REPORT_FILE-none}" >&2; exit 7'
    shell = Shell(master, 1, "sh", "-c", text)
    assert shell.closed() == StreamClosed(1, 7)
    lines = shell.text().splitlines()
    assert lines[0].split()[0] == "blue"
    assert lines[1] == str(executor.work / "session-0")
    assert shell.text(error=True) == "none\n"


def test_input_and_its_end(master: Master, executor: Executor) -> None:
    started(master)
    shell = Shell(master, 1, "cat")
    shell.type("one ")
    shell.type("two", end=True)
    assert shell.closed().exit_code == 0
    assert shell.text() == "one two"
    assert sum(m.size for m in master.received(StreamTaken, stream=1)) == 7


def test_a_command_that_does_not_exist(master: Master, executor: Executor) -> None:
    started(master)
    assert Shell(master, 1, "no-such-command").closed().exit_code == 127


def test_a_terminal_has_a_size_and_its_keys_are_signals(master: Master, executor: Executor) -> None:
    started(master)
    shell = Shell(master, 1, terminal=True)
    shell.type("stty size; tty; echo $TERM\n")
    found = shell.until("xterm")
    assert "33 77" in found and "/dev/pts/" in found
    master.send(ResizeTerminal(1, 50, 120))
    shell.type("stty size\n")
    shell.until("50 120")
    shell.type("sleep 299; echo after $?\n")
    master.wait(0.3)
    shell.type("\x03")
    shell.type("echo $((40 + 2)) here\n")
    shell.until("42 here")
    shell.type("exit 5\n")
    assert shell.closed().exit_code == 5


def test_what_a_shell_leaves_ends_with_it(master: Master, executor: Executor) -> None:
    started(master)
    shell = Shell(master, 1, "bash", "-c", f"{STRAY} sleep 0.5; exit 3")
    assert shell.closed().exit_code == 3
    pids = pids_in(shell.text())
    assert len(pids) == 1 and gone(pids, 0)


@pytest.mark.parametrize("terminal", [True, False])
def test_closing_ends_all_of_it_and_not_the_program(
    master: Master, executor: Executor, terminal: bool
) -> None:
    master.prepare()
    running = master.start("sleep 300")
    shell = Shell(master, 1, "bash", "-c", f"{STRAY} echo $$; sleep 300", terminal=terminal)
    pids = master.until(lambda: pids_in(shell.text()) if len(pids_in(shell.text())) > 1 else [])
    master.send(CloseStream(1))
    assert shell.closed().exit_code is not None
    assert gone(pids, 5)
    assert alive(running.pid)


def test_the_programs_end_ends_the_shell_with_a_sentence(
    master: Master, executor: Executor
) -> None:
    started(master, "sleep 1; exit 4")
    shell = Shell(master, 1, "bash", "-c", f"trap '' TERM; {STRAY} echo $$; sleep 300")
    ended = master.expect(Ended)
    assert ended.exit_code == 4
    assert shell.closed().message == "worker:0 has ended (exit code 4)"
    assert gone(pids_in(shell.text()), 5)


def test_a_stop_ends_the_shell_without_its_grace(master: Master, executor: Executor) -> None:
    started(master)
    shell = Shell(master, 1, "bash", "-c", "trap '' TERM HUP; echo $$; sleep 300; sleep 300")
    pids = master.until(lambda: pids_in(shell.text()))
    master.send(Stop(0, 30.0, "the test stops it"))
    assert shell.closed().message == "worker:0 is being ended"
    assert master.expect(Ended).session == 0
    assert gone(pids, 5)


def test_a_lost_master_ends_the_shell(master: Master, executor: Executor) -> None:
    started(master)
    shell = Shell(master, 1, "bash", "-c", "echo $$; sleep 300; sleep 300")
    pids = master.until(lambda: pids_in(shell.text()))
    master.links[-1].close()
    assert gone(pids, 10)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_executor_that_is_ended_leaves_no_shell(
    master: Master, executor: Executor, number: int
) -> None:
    started(master)
    shell = Shell(master, 1, "bash", "-c", f"{STRAY} echo $$; sleep 300; sleep 300")
    pids = master.until(lambda: pids_in(shell.text()) if len(pids_in(shell.text())) > 1 else [])
    children = Path(f"/proc/{executor.pid}/task/{executor.pid}/children").read_text().split()
    os.kill(int(children[0]) if number == signal.SIGKILL else executor.pid, number)
    assert gone(pids, 10)


def test_output_without_end_waits_for_its_reader(master: Master, executor: Executor) -> None:
    started(master)
    Shell(master, 1, "cat", "/dev/zero")
    size = lambda: sum(len(unpack_data(m.data)) for m in master.received(StreamData))  # noqa: E731
    master.until(lambda: size() == WINDOW)
    master.wait(0.5)
    assert size() == WINDOW
    master.send(StreamTaken(1, PIECE))
    master.until(lambda: size() == WINDOW + PIECE)
    master.send(CloseStream(1))
    master.expect(StreamClosed)


def test_more_input_than_the_window_ends_the_stream(master: Master, executor: Executor) -> None:
    started(master)
    shell = Shell(master, 1, "sleep", "300")
    master.expect(StreamOpened)
    for _ in range(2 * WINDOW // PIECE + 3):
        master.send(StreamData(1, pack_data(bytes(PIECE))))
    assert "window" in shell.closed().message


def test_a_message_without_bytes_ends_the_stream(master: Master, executor: Executor) -> None:
    started(master)
    shell = Shell(master, 1, "sleep", "300")
    master.expect(StreamOpened)
    master.send(StreamData(1, ""))
    assert "without bytes" in shell.closed().message


def test_the_end_of_the_output_waits_for_its_reader(master: Master, executor: Executor) -> None:
    """A reader may be slower than a shell's end: nothing of the output is cut off."""
    started(master)
    size = WINDOW + 40_000  # more than the window, less than it and a pipe
    shell = Shell(master, 1, "head", "-c", str(size), "/dev/zero")
    master.wait(DRAIN_S + 2.0)
    assert not master.received(StreamClosed)
    assert shell.closed() == StreamClosed(1, 0)
    assert len(shell.text()) == size


class TestRefusals:
    def test_by_the_site(self, launch: Any, tmp_path: Path) -> None:
        strict = Master()  # the welcome of a site that allows none
        try:
            launch(master=strict.address)
            started(strict)
            strict.send(OpenStream(1, "worker:0", "shell", ["true"]))
            closed = strict.expect(StreamClosed)
            assert "tony.shell.enabled" in closed.message and closed.exit_code is None
            assert closed.refused == Refused.FINAL.value
        finally:
            strict.close()

    def test_without_a_program(self, master: Master, executor: Executor) -> None:
        master.prepare()
        master.send(OpenStream(1, "worker:0", "shell", ["true"]))
        closed = master.expect(StreamClosed)
        assert "no program" in closed.message and closed.refused == Refused.NO_PROGRAM.value

    def test_for_a_task_that_is_not_here(self, master: Master, executor: Executor) -> None:
        started(master)
        master.send(OpenStream(1, "worker:1", "shell", ["true"]))
        assert "runs worker:0 now" in master.expect(StreamClosed).message

    @pytest.mark.parametrize(
        ("command", "refused"),
        [
            ("sleep 300", Refused.FINAL),
            ("sleep 300 && python3 -m tony_notebook", Refused.NOT_READY),
        ],
    )
    def test_of_a_notebook_where_none_runs(
        self, launch: Any, command: str, refused: Refused
    ) -> None:
        notebooks = Master(notebook_enabled=True)
        try:
            launch(master=notebooks.address)
            started(notebooks, command)
            notebooks.send(OpenStream(1, "worker:0", "notebook"))
            closed = notebooks.expect(StreamClosed)
            assert "no notebook" in closed.message and closed.refused == refused.value
        finally:
            notebooks.close()


def notebook_in(folder: Path) -> ProgramPlace:
    return ProgramPlace("worker:0", {}, str(folder), "python3 -m tony_notebook")


def test_a_jupyter_that_accepts_nothing_holds_nothing_up(tmp_path: Path) -> None:
    token = {"socket": "notebook.sock", "token": "t"}
    (tmp_path / "notebook.json").write_text(json.dumps(token))
    with socket.socket(socket.AF_UNIX) as full:
        full.bind(str(tmp_path / "notebook.sock"))
        full.listen(0)
        taken = []
        with pytest.raises(Refusal, match="does not listen") as caught:
            for _ in range(5):
                taken.append(connect_notebook(notebook_in(tmp_path))[0])
        assert taken and caught.value.refused is Refused.NOT_READY
        for sock in taken:
            sock.close()


@pytest.mark.parametrize("name", ["a\x00b", "x" * 200, "ü\udc80"])
def test_a_notebooks_socket_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "notebook.json").write_text(json.dumps({"socket": name, "token": "t"}))
    with pytest.raises(Refusal, match="does not listen"):
        connect_notebook(notebook_in(tmp_path))


def test_a_fault_of_ours_is_a_refusal_too() -> None:
    def broken() -> NoReturn:
        raise RuntimeError("a bug")

    sent: List[object] = []
    reactor = Reactor(lambda text: None)
    streams = Streams(reactor, sent.append, broken, lambda text: None)
    streams.configure(shell=True, notebook=True)
    streams.handle(OpenStream(3, "worker:0", "shell"))
    reactor.close()
    assert sent == [StreamClosed(3, None, "a fault of tony's own: RuntimeError: a bug")]


def test_without_descriptors_a_notebook_is_refused(tmp_path: Path) -> None:
    """An executor with many streams is out of them, and goes on."""
    (tmp_path / "notebook.json").write_text(json.dumps({"socket": "a", "token": "t"}))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, limits[1]))
    try:
        with pytest.raises(Refusal, match="Too many open files"):
            connect_notebook(notebook_in(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("content", ["", "[]", "[" * 4000, '{"socket": 1}', "{}", None])
def test_a_notebooks_file_may_be_anything(tmp_path: Path, content: Any) -> None:
    if content is None:
        os.mkfifo(tmp_path / "notebook.json")
    else:
        (tmp_path / "notebook.json").write_text(content)
    with pytest.raises(Refusal, match="no notebook"):
        connect_notebook(notebook_in(tmp_path))
