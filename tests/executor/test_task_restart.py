"""The restart of a single task within its session, in its executor."""

from __future__ import annotations

import socket
from typing import List

import pytest

from tests.executor.standin import Executor, Master, alive, free_span, pids_in
from tests.executor.test_machine import Story, kinds
from tony_core.protocol.messages import (
    Acknowledge,
    Ended,
    Prepare,
    Ready,
    Register,
    Running,
    Start,
    Stopped,
)
from tony_executor import commands as do
from tony_executor import events as ev
from tony_executor.network.ports import NoPort, Ports
from tony_executor.task_state import TaskPhase

AGAIN = Prepare("worker:0", 0, ["main"], restart=1, same_ports=True)


@pytest.fixture
def story() -> Story:
    """Its program has failed, and nothing of it is left."""
    story = Story().linked().running()
    story.ended(1)
    story(ev.ProcessesEnded(0, []))
    return story


def test_messages_carry_the_number_of_the_restart(story: Story) -> None:
    assert story.receive(AGAIN) == [do.PrepareTask(AGAIN)]
    story(ev.Prepared(0, 0, "h", {"main": 5}))
    story.receive(Start(0, "cmd", {}, restart=1))
    story(ev.ProgramStarted(0, 0, 99))
    story.ended(4)
    assert [m.restart for m in story.sent(Ready)] == [0, 1]
    assert [m.restart for m in story.sent(Running)] == [0, 1]
    assert [(m.exit_code, m.restart) for m in story.sent(Ended)] == [(1, 0), (4, 1)]
    story(ev.LinkOpened(0, 2))
    assert story.sent(Register)[-1].restart == 1


def test_messages_about_the_previous_program_are_ignored(story: Story) -> None:
    story.receive(AGAIN)
    story(ev.Prepared(0, 0, "h", {"main": 5}))
    assert kinds(story.receive(Prepare("worker:0", 0, ["main"]))) == [], "sent late"
    assert "StartProgram" not in kinds(story.receive(Start(0, "cmd", {})))
    assert story.machine.task.phase is TaskPhase.READY
    story.receive(Start(0, "cmd", {}, restart=1))
    story(ev.ProgramStarted(0, 0, 99))
    story.ended(4)
    story.receive(Acknowledge(0))
    assert story.machine.ended is not None, "that was the first end's"
    story.receive(Acknowledge(0, 1))
    assert story.machine.ended is None


def test_it_waits_for_the_last_descendant_of_the_program_before() -> None:
    story = Story().linked().running()
    story.ended(1)
    assert kinds(story.receive(AGAIN)) == []
    assert story(ev.ProcessesEnded(0, [])) == [do.PrepareTask(AGAIN)]


def test_it_does_not_begin_beside_what_is_left() -> None:
    story = Story().linked().running()
    story.ended(1)
    story.receive(AGAIN)
    assert story(ev.ProcessesEnded(0, [77])) == [
        do.WriteLog("these processes survived KILL: [77]"),
        do.SendMessage(1, Stopped(0, False, [77])),
    ]


@pytest.mark.parametrize("left", [[], [77]])
def test_what_was_left_is_looked_for_once_more(left: List[int]) -> None:
    story = Story().linked().running()
    story.ended(1)
    story(ev.ProcessesEnded(0, [77]))  # the next try has a pause, and Prepare comes later
    assert kinds(story.receive(AGAIN)) == ["EndProcesses"]
    out = story(ev.ProcessesEnded(0, left))
    assert kinds(out) == (["Stopped"] if left else ["PrepareTask"])
    assert [m.clean for m in story.sent(Stopped)] == ([False] if left else [])


def test_the_ports_are_the_same_and_the_folder_is_not(master: Master, executor: Executor) -> None:
    ready = master.prepare(ports=["main", "second"])
    daemon = "(trap '' TERM; setsid sleep 300 & echo $!; sleep 300) & sleep 0.2"
    master.start(f"pwd; echo mine > here; {daemon}; exit 3", release_ports=["second"])
    first = master.expect(Ended)
    assert (first.exit_code, first.restart) == (3, 0)
    again = AGAIN._replace(ports=["main", "second"])
    master.send(again)
    second = master.expect(Ready, restart=1)
    assert second.ports == ready.ports
    left: List[int] = [pid for pid in pids_in(executor.log("stdout")) if alive(pid)]
    assert not left, "nothing of the old program is there when the new one may begin"
    master.send(Start(0, "pwd; ls; echo $TONY_REPORT_FILE", {}, restart=1))
    assert master.expect(Ended, restart=1).exit_code == 0
    lines = executor.log("stdout").split()
    folders = [line for line in lines if "/session-0" in line]
    assert len(set(folders)) == 2 and "here" not in lines


def test_new_ports_where_the_old_ones_are_no_good(master: Master, executor: Executor) -> None:
    span = free_span(4)
    ready = master.prepare(port_range=span)
    master.start("exit 3")
    master.expect(Ended)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("0.0.0.0", ready.ports["main"]))
        sock.listen()
        master.send(AGAIN._replace(same_ports=False, port_range=span))
        assert master.expect(Ready, restart=1).ports != ready.ports


def test_a_released_port_on_which_a_connection_has_only_just_ended_is_taken_again() -> None:
    """The side that ends a connection first keeps its port for a minute: here the program did."""
    ports = Ports()
    try:
        numbers = ports.hold(["main"])
        ports.release(["main"])
        with socket.socket() as served:
            served.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            served.bind(("127.0.0.1", numbers["main"]))
            served.listen()
            with socket.create_connection(("127.0.0.1", numbers["main"])) as caller:
                served.accept()[0].close()
                assert caller.recv(1) == b""
        assert ports.hold(["main"], same=True) == numbers
    finally:
        ports.close()


def test_a_released_port_taken_by_another_process_is_an_error() -> None:
    ports = Ports()
    try:
        numbers = ports.hold(["main", "other"])
        ports.release(["main"])
        with socket.socket() as sock:
            sock.bind(("0.0.0.0", numbers["main"]))
            with pytest.raises(NoPort, match="which peers know") as caught:
                ports.hold(["main", "other"], same=True)
        assert caught.value.cause == "address-in-use"
        assert not ports.numbers
    finally:
        ports.close()
