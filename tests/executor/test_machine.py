"""The executor machine without sockets, clocks or processes."""

from __future__ import annotations

from typing import Any, List, Optional, Type

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing import bounds, fuzz, mutations
from tony_core.protocol.messages import (
    Acknowledge,
    DumpStacks,
    Ended,
    Heartbeat,
    Measured,
    Noted,
    Ping,
    Preemption,
    Prepare,
    Ready,
    Register,
    Reported,
    Running,
    Serving,
    Shutdown,
    StacksDumped,
    Start,
    Stop,
    Stopped,
    Welcome,
)
from tony_executor import commands as do
from tony_executor import events as ev
from tony_executor.machine import ExecutorMachine
from tony_executor.monitoring.diagnosis import diagnose_end
from tony_executor.task_state import ContainerIdentity, TaskPhase

WHO = ContainerIdentity("c1", "h", 7, 99, "0", {})


def welcome(attempt: int = 1, **fields: Any) -> Welcome:
    values: Any = {
        "heartbeat_s": 1.0,
        "silence_s": 25.0,
        "master_lost_s": 30.0,
        "metrics_interval_s": 5.0,
        "gpu_metrics": True,
        "error_lines": 20,
        "registry_timeout_s": 300.0,
        **fields,
    }
    return Welcome(attempt=attempt, **values)


class Story:
    """A life, its clock, and all that it wanted done."""

    def __init__(self) -> None:
        self.machine = ExecutorMachine(WHO, register_s=100.0)
        self.at = 0.0
        self.done: List[do.Command] = []
        self(ev.ExecutorStarted(0.0))

    def __call__(self, event: Any) -> List[do.Command]:
        out = self.machine.handle(event._replace(at=self.at))
        self.done += out
        return out

    def receive(self, message: Any, link: int = 1) -> List[do.Command]:
        return self(ev.MessageReceived(0, link, message))

    def later(self, seconds: float) -> List[do.Command]:
        """Let time pass, ticking when asked to."""
        end = self.at + seconds
        out: List[do.Command] = []
        for _ in range(10_000):
            due = self.machine.next_deadline()
            if due is None or due > end:
                break
            self.at = max(self.at, due)
            out += self(ev.Tick(0))
        self.at = end
        return out

    def linked(self, link: int = 1, attempt: int = 1, **fields: Any) -> Story:
        self(ev.LinkOpened(0, link))
        self.receive(welcome(attempt, **fields), link)
        return self

    def ready(self, session: int = 0) -> Story:
        self.receive(Prepare("worker:0", session, ["main"]))
        self(ev.Prepared(0, session, "h", {"main": 5}))
        return self

    def running(self, session: int = 0, **fields: Any) -> Story:
        self.ready(session)
        self.receive(Start(session, "cmd", {}, **fields))
        self(ev.ProgramStarted(0, session, 1234))
        return self

    def ended(self, code: int = 0, signal: int = 0, session: int = 0) -> List[do.Command]:
        return self(ev.ProgramEnded(0, session, code, signal, [], [], 9e9, {}))

    def sent(self, kind: Type[Any]) -> List[Any]:
        return [
            c.message
            for c in self.done
            if isinstance(c, do.SendMessage) and isinstance(c.message, kind)
        ]


@pytest.fixture
def story() -> Story:
    return Story()


def kinds(out: List[do.Command]) -> List[str]:
    return [
        type(c.message).__name__ if isinstance(c, do.SendMessage) else type(c).__name__
        for c in out
        if not isinstance(c, do.WriteLog)
    ]


def test_it_begins_by_looking_for_a_master(story: Story) -> None:
    assert kinds(story.done) == ["FindMaster"]
    assert kinds(story(ev.LinkOpened(0, 1))) == ["Register"]
    assert kinds(story.receive(welcome())) == ["StopFinding", "Configure"]


def test_a_session_from_prepare_to_acknowledge(story: Story) -> None:
    story.linked().running()
    assert [type(m) for m in (story.sent(Ready)[0], story.sent(Running)[0])] == [Ready, Running]
    assert kinds(story.ended(3)) == ["Ended", "EndProcesses"]
    assert story.sent(Ended)[0].exit_code == 3
    assert kinds(story(ev.ProcessesEnded(0, []))) == []
    story.receive(Acknowledge(0))
    assert story.machine.ended is None
    story.running(1)
    assert story.machine.task.session == 1


def test_stop_waits_for_the_sweep(story: Story) -> None:
    story.linked().running()
    out = story.receive(Stop(0, 2.0, "restart"))
    assert out == [do.EndProcesses(2.0, False)]
    assert kinds(story.ended(143, 15)) == ["Ended", "EndProcesses"]  # a shorter grace for the rest
    assert story.sent(Ended)[0].cause == "stopped"
    assert story(ev.ProcessesEnded(0, [])) == [do.SendMessage(1, Stopped(0, True, []))]


def test_survivors_are_named(story: Story) -> None:
    story.linked().running()
    story.receive(Stop(0, 0.0))
    story.ended(137, 9)
    story(ev.ProcessesEnded(0, [77]))
    assert story.sent(Stopped) == [Stopped(0, False, [77])]


def test_no_folder_is_made_over_survivors(story: Story) -> None:
    story.linked().running()
    story.receive(Prepare("worker:0", 1, ["main"]))
    story.ended(137, 9)
    out = story(ev.ProcessesEnded(0, [77]))
    assert "PrepareTask" not in kinds(out)
    assert story.sent(Stopped)[-1].clean is False


def test_prepare_waits_for_the_sweep_that_the_end_began(story: Story) -> None:
    story.linked().running()
    story.ended(1)
    assert kinds(story.receive(Prepare("worker:0", 1, ["main"]))) == []
    assert kinds(story(ev.ProcessesEnded(0, []))) == ["PrepareTask"]


def test_the_program_that_ends_well_in_spite_of_our_stop_was_stopped(story: Story) -> None:
    story.linked().running()
    story.receive(Stop(0, 5.0))
    story.ended(0)
    assert story.sent(Ended)[0].cause == "stopped"


def test_ended_is_sent_again_every_five_seconds(story: Story) -> None:
    story.linked().running()
    story.ended(1)
    story(ev.ProcessesEnded(0, []))
    story.later(16)
    assert len(story.sent(Ended)) == 4
    story.receive(Acknowledge(0))
    story.later(20)
    assert len(story.sent(Ended)) == 4


def test_an_acknowledgement_of_another_session_counts_for_nothing(story: Story) -> None:
    story.linked().running()
    story.ended(1)
    story.receive(Acknowledge(5))
    assert story.machine.ended is not None


def test_heartbeats_stop_with_the_link(story: Story) -> None:
    story.linked()
    story.later(5.5)
    assert len(story.sent(Heartbeat)) == 5
    story(ev.LinkClosed(0, 1, "gone"))
    story.later(5)
    assert len(story.sent(Heartbeat)) == 5


def test_a_lost_master_is_looked_for_and_waited_for(story: Story) -> None:
    story.linked().running()
    assert story(ev.LinkClosed(0, 1, "gone"))[-1] == do.FindMaster(start_successor=True)
    assert kinds(story.later(29.9)) == []
    assert story.later(0.2)[-1] == do.EndProcesses(1.0, True)
    story.ended(143, 15)
    out = story(ev.ProcessesEnded(0, []))
    assert isinstance(out[-1], do.Exit) and out[-1].code == 66
    assert story(ev.Tick(0)) == [] and story.machine.next_deadline() is None


def test_a_master_that_comes_back_stops_that_clock(story: Story) -> None:
    story.linked().running()
    story(ev.LinkClosed(0, 1, "gone"))
    story.later(29)
    story.linked(2)
    story.later(60)
    assert story.machine.task.phase is TaskPhase.RUNNING


def test_no_master_within_the_register_timeout(story: Story) -> None:
    out = story.later(101)
    assert "EndProcesses" in kinds(out)
    out = story(ev.ProcessesEnded(0, []))
    assert isinstance(out[-1], do.Exit) and out[-1].code == 65


def test_only_the_highest_attempt_is_obeyed(story: Story) -> None:
    story.linked(1, attempt=2)
    story(ev.LinkOpened(0, 2))
    out = story.receive(welcome(1), 2)
    assert out == [do.CloseLink(2, "master 1 is older than 2")]
    story(ev.LinkOpened(0, 3))
    assert kinds(story.receive(welcome(3), 3))[0] == "CloseLink"  # the former
    assert story.machine.master.link == 3
    assert story.receive(Shutdown(0.0), 1) == []
    assert story.machine.master.link == 3


def test_a_message_that_no_master_sends_ends_the_link(story: Story) -> None:
    story.linked()
    out = story.receive(Heartbeat(1))
    assert isinstance(out[0], do.CloseLink)
    assert story.machine.master.link is None


def test_what_happened_between_register_and_welcome_is_sent(story: Story) -> None:
    story.linked().running()
    story(ev.LinkClosed(0, 1, "gone"))
    story(ev.LinkOpened(0, 2))
    story.ended(1)
    assert not story.sent(Ended)
    story.receive(welcome(2), 2)
    assert len(story.sent(Ended)) == 1


def test_what_register_carried_is_not_sent_twice(story: Story) -> None:
    story.linked().running()
    story(ev.LinkClosed(0, 1, "gone"))
    story.ended(1)
    story(ev.LinkOpened(0, 2))
    assert story.sent(Register)[-1].ended["exit_code"] == 1
    story.receive(welcome(2), 2)
    assert not story.sent(Ended)


def test_the_registry_clock_begins_anew_with_each_prepare(story: Story) -> None:
    story.linked(registry_timeout_s=10.0)
    story.later(9)
    story.receive(Prepare("worker:0", 0, ["main"]))
    story.later(9)
    assert not story.sent(Ended)
    story.later(2)
    assert story.sent(Ended)[0].cause == "registry-timeout"
    assert story.machine.task.phase is TaskPhase.ENDED


def test_a_ready_task_waits_as_long_as_the_master_does(story: Story) -> None:
    """The rest of the gang may still be without containers."""
    story.linked(registry_timeout_s=10.0).ready()
    story.later(10_000)
    assert story.machine.task.phase is TaskPhase.READY
    story(ev.LinkClosed(0, 1, "gone"))
    story.later(5)
    story.linked(2, attempt=2, registry_timeout_s=10.0)
    story.later(10_000)
    assert story.machine.task.phase is TaskPhase.READY and not story.sent(Ended)
    assert "StartProgram" in kinds(story.receive(Start(0, "cmd", {}), link=2))


def test_an_executor_without_a_task_exits(story: Story) -> None:
    story.linked(registry_timeout_s=10.0)
    story.later(11)
    assert "tony.task.executor.registry-timeout-sec" in story.sent(Noted)[0].text
    assert story.machine.is_exiting


def test_a_finished_task_has_no_registry_clock(story: Story) -> None:
    story.linked(registry_timeout_s=10.0).running()
    story.ended(0)
    story(ev.ProcessesEnded(0, []))
    story.receive(Acknowledge(0))
    story.later(100)
    assert not story.machine.exited


def test_the_execution_clock(story: Story) -> None:
    story.linked().running(execution_timeout_s=10.0)
    story.later(10.1)
    assert (
        story.done[-1] == do.EndProcesses(1.0, False) or do.EndProcesses(1.0, False) in story.done
    )
    story.ended(137, 9)
    assert story.sent(Ended)[0].cause == "execution-timeout"


def test_reports_are_merged_for_the_next_master(story: Story) -> None:
    story.linked().running()
    story(ev.Observed(0, Reported(0, 0.1, {"a": 1.0}, 5)))
    story(ev.Observed(0, Reported(0, None, {"b": 2.0}, 6)))
    story(ev.Observed(0, Reported(0, None, {}, None, "", 4)))
    story(ev.Observed(0, Reported(0, None, {}, None, '{"auc":0.9}')))
    story(ev.Observed(0, Reported(9, 0.9, {}, None)))  # of another session
    story(ev.Observed(0, Serving("tensorboard", 6006)))
    story(ev.LinkClosed(0, 1, "gone"))
    story(ev.Observed(0, Noted("warning", "while alone")))
    story(ev.Observed(0, Measured(0, {"rss_mb": 1.0})))
    story.done.clear()
    story.linked(2)
    assert story.sent(Reported) == [Reported(0, 0.1, {"a": 1.0, "b": 2.0}, 6, '{"auc":0.9}', 4)]
    assert story.sent(Serving) == [Serving("tensorboard", 6006)]
    assert story.sent(Noted) == [Noted("warning", "while alone")]
    assert not story.sent(Measured)


def test_stacks_are_dumped_of_the_program_that_runs_and_reported_to_the_master_that_is_there(
    story: Story,
) -> None:
    story.linked().ready()
    assert kinds(story.receive(DumpStacks(0))) == []
    story.receive(Start(0, "cmd", {}))
    story(ev.ProgramStarted(0, 0, 5))
    assert story.receive(DumpStacks(0, 0, "worker:1 has stalled")) == [
        do.DumpStacks("worker:1 has stalled")
    ]
    assert kinds(story.receive(DumpStacks(0, 1))) == kinds(story.receive(DumpStacks(1))) == []
    story(ev.Observed(0, StacksDumped(0, 1)))
    story(ev.LinkClosed(0, 1, "gone"))
    story(ev.Observed(0, StacksDumped(0, 0, 1.0)))
    story.linked(2, 2)
    story(ev.Observed(0, StacksDumped(0, 0, 2.0)))
    assert story.sent(StacksDumped) == [StacksDumped(0, 0, 2.0)]


def made(kind: Any, *fields: Any) -> Any:
    """A tuple of that kind, of values that these give."""
    return st.tuples(*fields).map(lambda values: kind(*values))


MESSAGES = st.one_of(
    made(Prepare, st.just("w:0"), st.integers(0, 3), st.just(["main"])),
    made(Start, st.integers(0, 3), st.just("x"), st.just({})),
    made(Acknowledge, st.integers(0, 3)),
    made(DumpStacks, st.integers(0, 3)),
    made(Stop, st.integers(0, 3), st.floats(0, 5)),
    made(Shutdown, st.floats(0, 5)),
    st.integers(1, 3).map(welcome),
    st.just(Ping()),
)
LINKS = st.integers(1, 3)
EVENTS = st.one_of(
    made(ev.LinkOpened, st.just(0.0), LINKS),
    made(ev.MessageReceived, st.just(0.0), LINKS, MESSAGES),
    made(ev.MessageReceived, st.just(0.0), LINKS, MESSAGES),
    made(ev.MessageReceived, st.just(0.0), LINKS, MESSAGES),
    made(ev.LinkClosed, st.just(0.0), LINKS, st.just("r")),
    made(ev.NoNextMaster, st.just(0.0), st.just("over")),
    made(ev.Observed, st.just(0.0), st.just(Noted("info", "n"))),
    made(ev.Observed, st.just(0.0), st.builds(StacksDumped, st.integers(0, 3))),
    made(ev.PortsTaken, st.just(0.0), st.integers(0, 3), st.just(["main"])),
    st.floats(0, 40),
)


class Shell:
    """Does what the machine wants as the real shell would, in any order that can be."""

    def __init__(self) -> None:
        self.story = Story()
        self.child: Optional[int] = None
        self.sweeping = False
        self.layout: Optional[int] = None
        self.exited = False

    def take(self, out: List[do.Command]) -> None:
        for command in out:
            if isinstance(command, do.PrepareTask):
                self.layout = command.prepare.session
            elif isinstance(command, do.StartProgram):
                assert self.child is None and not self.sweeping, "started over another"
                self.child = command.start.session
            elif isinstance(command, do.EndProcesses):
                self.sweeping = True
                self.layout = None
            elif isinstance(command, do.Exit):
                assert self.child is None, "left a child"
                self.exited = True

    def settle(self, choice: int) -> None:
        """One thing that the world does by itself."""
        if choice == 0 and self.layout is not None:
            session, self.layout = self.layout, None
            self.take(self.story(ev.Prepared(0, session, "h", {"main": 1})))
        elif choice == 1 and self.child is not None:
            self.take(self.story(ev.ProgramStarted(0, self.child, 5)))
        elif choice == 2 and self.child is not None:
            session, self.child = self.child, None
            self.take(self.story.ended(1, 0, session))
        elif choice == 3 and self.sweeping:
            if self.child is not None:
                self.settle(2)
            self.sweeping = False
            self.take(self.story(ev.ProcessesEnded(0, [])))


@settings(max_examples=300)
@given(st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 3), max_size=3)), max_size=40))
def test_invariants_hold_after_any_events(happenings: List[Any]) -> None:
    """Every invariant after every event; no program over another; no exit over a program."""
    shell = Shell()
    for event, choices in happenings:
        if isinstance(event, float):
            shell.take(shell.story.later(event))
        else:
            shell.take(shell.story(event))
        for choice in choices:
            shell.settle(choice)
        if shell.exited:
            assert shell.story.machine.exited
    # And it can always be brought to its end.
    story = shell.story
    story(ev.LinkOpened(0, 9))
    shell.take(story.receive(welcome(99), 9))
    shell.take(story.receive(Shutdown(0.0), 9))
    shell.settle(3)
    shell.settle(3)
    assert story.machine.exited


ADDRESS = "address-in-use"
TORCH = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local"
    " network address. port: {}, useIpv6: false, code: -98, name: EADDRINUSE, message: address"
    " already in use"
)
OLD_TORCH = (
    "[W1122 22:08:03.123456789 socket.cpp:436] [c10d] The server socket has failed to bind to"
    " [::]:{} (errno: 98 - Address already in use)."
)
GRPC = (
    "E0000 00:00:1763849283.123456    4321 add_port.cc:83] Failed to add port to server: No address"
    " added out of total 1 resolved for '[::]:{}' {{created_time:\"2026-11-22T22:08:03.1+00:00\","
    ' children:[UNKNOWN:Address already in use {{errno:98, os_error:"Address already in use",'
    ' syscall:"bind"}}]}}'
)


@pytest.mark.parametrize(
    ("tail", "ports", "taken", "ran", "cause"),
    [
        (["OSError: [Errno 98] Address already in use"], [12000], [], 1.0, "address-in-use"),
        (["bind 0.0.0.0:12000: Address already in use"], [12000], [], 1.0, "address-in-use"),
        (["bind 0.0.0.0:5000: address already in use"], [12000], [], 1.0, "exited"),
        (["bind 0.0.0.0:12000: Address already in use"], [12000], [], 600.0, "exited"),
        (["RuntimeError: EADDRINUSE"], [12000], ["main"], 1.0, "address-in-use"),
        (["ValueError: no"], [12000], ["main"], 1.0, "exited"),
        (["2026-11-22 22:08:03,123 OSError: [Errno 98] in use"], [12000], [], 1.0, ADDRESS),
        (["E1122 12345 server.cc:1234] Address already in use"], [12000], [], 1.0, ADDRESS),
        (["pid 4321: listen tcp :12000: bind: address already in use"], [12000], [], 1.0, ADDRESS),
        (["listen tcp :8080: bind: address already in use"], [12000], [], 1.0, "exited"),
        (["bind on address ('::', 8080, 0, 0): address already in use"], [12000], [], 1, "exited"),
        (["node-7:8080: address already in use"], [12000], [], 1.0, "exited"),
        ([TORCH.format(12000)], [12000], [], 1.0, ADDRESS),
        ([TORCH.format(29500)], [12000], [], 1.0, "exited"),
        ([OLD_TORCH.format(12000)], [12000], [], 1.0, ADDRESS),
        ([GRPC.format(12000), "UNKNOWN: Could not start gRPC server"], [12000], [], 1.0, ADDRESS),
        (["UNKNOWN: Could not start gRPC server"], [12000], ["main"], 1.0, ADDRESS),
        (["UNKNOWN: Could not start gRPC server"], [12000], [], 1.0, "exited"),
        (["XlaRuntimeError: UNKNOWN: Failed to start RPC server"], [12000], ["main"], 1.0, ADDRESS),
        (["[LightGBM] [Fatal] Binding port 12000 failed"], [12000], [], 1.0, ADDRESS),
        (["[LightGBM] [Fatal] Binding port 12400 failed"], [12000], [], 1.0, "exited"),
        (["Check failed: (my_node_.port) != (-1) bind failed"], [12000], ["main"], 1.0, ADDRESS),
        (["zmq.error.ZMQError: Address already in use"], [12000], [], 1.0, ADDRESS),
        (
            ["ERROR: TensorBoard could not bind to port 12000, it was already in use"],
            [12000],
            [],
            1,
            ADDRESS,
        ),
        (["could not bind port 12000: Permission denied"], [12000], ["main"], 1.0, "exited"),
        (["OSError: [Errno 28] No space left on device"], [], [], 600.0, "disk-full"),
        (["all is well"], [], [], 1.0, "exited"),
    ],
)
def test_causes(
    tail: List[str], ports: List[int], taken: List[str], ran: float, cause: str
) -> None:
    assert diagnose_end(1, 0, tail, ran, ports, taken, 1e6)[0] == cause
    assert diagnose_end(0, 0, tail, ran, ports, taken, 1e6) == ("exited", "")


@fuzz(
    tail=st.lists(mutations(*(line.format(12000).encode() for line in (TORCH, OLD_TORCH, GRPC)))),
    before=st.lists(st.text(max_size=500)),
)
def test_any_lines_are_judged(tail: List[bytes], before: List[str]) -> None:
    lines = [line.decode("utf-8", "replace")[:500] for line in tail]
    assert diagnose_end(1, 0, lines, 1.0, [12000], [], 1e6, before)[0] in (
        ADDRESS, "exited", "disk-full", "not-found", "not-executable",
    )  # fmt: skip


@pytest.mark.parametrize("word", ["a1", "a-", "a1.", "port ", "1.1.1.1", ":", "bind "])
def test_long_lines_are_judged_soon(word: str) -> None:
    with bounds(seconds=5.0):
        diagnose_end(1, 0, ["Address in use" + (word * 500)[:480]] * 200, 1.0, [12000], [], 1e6)


def test_a_port_that_is_named_before_the_last_lines() -> None:
    """torchrun's own report of a failure is longer than the diagnosis."""
    before = [TORCH.format(12000), TORCH.format(29500)]
    tail = ["ChildFailedError:", "exitcode: 1 (pid: 4321)"]
    assert diagnose_end(1, 0, tail, 1.0, [12000], [], 1e6, before[:1])[0] == ADDRESS
    assert diagnose_end(1, 0, tail, 1.0, [12000], [], 1e6, before[1:])[0] == "exited"
    assert diagnose_end(1, 0, tail, 99.0, [12000], [], 1e6, before)[0] == "exited"


def test_ports_that_are_taken_end_the_program_of_their_session_once() -> None:
    story = Story().linked().running()
    assert story(ev.PortsTaken(0, 7, ["main"])) == []
    assert kinds(story(ev.PortsTaken(0, 0, ["main"]))) == ["EndProcesses"]
    assert story(ev.PortsTaken(0, 0, ["main"])) == []
    story.ended(143)
    (ended,) = story.sent(Ended)
    assert (ended.cause, "(main)" in ended.message) == (ADDRESS, True)


@pytest.mark.parametrize(
    ("line", "has_hint"),
    [
        ("/bin/bash: line 1: python: command not found", True),
        ("/usr/bin/env: 'python': No such file or directory", True),
        ("/bin/bash: line 1: python3: command not found", False),
        ("/bin/bash: line 1: /opt/python: No such file or directory", False),
        ("bash: line 1: my-python: command not found", False),
    ],
)
def test_a_node_that_has_only_a_python3(line: str, has_hint: bool) -> None:
    cause, message = diagnose_end(127, 0, [line], 0.0, [], [], 1e6)
    assert (cause, "python3, or --python_binary_path" in message) == ("not-found", has_hint)


def test_a_full_disk_without_a_message_on_stderr() -> None:
    cause, message = diagnose_end(1, 0, [], 100.0, [], [], 0.2)
    assert cause == "disk-full" and "0 MB" in message


class TestPreemption:
    """A warning is given to the program once, and explains an exit while it holds."""

    def running(self) -> Story:
        story = Story()
        story(ev.LinkOpened(0, 1))
        story.receive(welcome())
        story.receive(Prepare("worker:0", 0, ["main"]))
        story(ev.Prepared(0, 0, "h", {"main": 1}))
        story.receive(Start(0, "true", {}))
        story(ev.ProgramStarted(0, 0, 7))
        return story

    def given(self, commands: List[do.Command]) -> int:
        return sum(isinstance(command, do.WarnProgram) for command in commands)

    def test_one_that_is_sent_again_is_given_once(self) -> None:
        story = self.running()
        assert self.given(story.receive(Preemption(0, seconds=15.0))) == 1
        story.later(3.0)
        assert self.given(story.receive(Preemption(0, seconds=12.1))) == 0
        assert self.given(story.receive(Preemption(0, seconds=5.0))) == 1
        assert self.given(story.receive(Preemption(0, seconds=5.0, own=False))) == 1
        assert self.given(story.receive(Preemption(0, seconds=None, own=False))) == 1
        assert self.given(story.receive(Preemption(0, withdrawn=True))) == 1
        assert self.given(story.receive(Preemption(0, withdrawn=True))) == 0

    def test_it_is_given_to_no_program_but_the_one_that_it_names(self) -> None:
        story = Story()
        story(ev.LinkOpened(0, 1))
        story.receive(welcome())
        assert self.given(story.receive(Preemption(-1, seconds=1.0))) == 0
        story = self.running()
        for session, restart in ((1, 0), (0, 1), (-1, 0)):
            assert self.given(story.receive(Preemption(session, restart, seconds=1.0))) == 0

    @pytest.mark.parametrize(
        ("withdrawn", "noticed", "stopped", "preempted"),
        [
            (False, True, False, True),
            (False, False, False, False),
            (True, True, False, False),
            (False, True, True, False),
        ],
    )
    def test_an_exit_by_itself_after_it_was_noticed(
        self, withdrawn: bool, noticed: bool, stopped: bool, preempted: bool
    ) -> None:
        story = self.running()
        story.receive(Preemption(0, seconds=1.0))
        if withdrawn:
            story.receive(Preemption(0, withdrawn=True))
        if stopped:
            story.receive(Stop(0, 1.0, "the session failed"))
        out = story(ev.ProgramEnded(0, 0, 0, 0, [], [], 1e6, {}, noticed=noticed))
        (ended,) = [
            command.message
            for command in out
            if isinstance(command, do.SendMessage) and isinstance(command.message, Ended)
        ]
        assert ended.preempted is preempted
