"""The conversation with the ResourceManager, with one that answers by a script."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, List, Optional, Tuple

import pytest

from tony_core.hadoop.errors import (
    AlreadyRegistered,
    AttemptNotFound,
    InvalidRequest,
    NotRegistered,
    RemoteError,
    Unreachable,
)
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId
from tony_core.hadoop.yarn.messages.reports import ApplicationReport
from tony_core.hadoop.yarn.messages.resource_requests import ResourceRequest, SchedulingRequest
from tony_core.hadoop.yarn.records import AppReport, Capability
from tony_core.hadoop.yarn.rm_master import Allocation, Preempted, Registered
from tony_core.schedulers.yarn.master import heartbeat
from tony_core.schedulers.yarn.master.container_requests import RequestUpdate
from tony_core.schedulers.yarn.master.heartbeat import FAST_S, SLOW_S, Heartbeat, HeartbeatRequest

APP = ApplicationId(1700000000000, 42)
REGISTERED = Registered(Capability(8192, 8), "root.ml", (), (), {})


def answer(command: str = "") -> Allocation:
    return Allocation(command, (), (), (), None, (), 1, Preempted((), ()), (), {}, None)


def resource_request(number: int) -> ResourceRequest:
    return ResourceRequest(resource_name="*", num_containers=1, allocation_request_id=number)


@dataclass
class Script:
    """The ResourceManager and the listener of one heartbeat."""

    answers: List[Any] = field(default_factory=list)  # of allocate: to give, or to raise
    registrations: List[Any] = field(default_factory=list)
    beats: List[HeartbeatRequest] = field(default_factory=list)
    sent: List[Tuple[int, ...]] = field(default_factory=list)  # request ids of each call
    calls: List[Any] = field(default_factory=list)
    soon: bool = False

    def allocate(self, **update: Any) -> Allocation:
        requests = [*update["resource_requests"], *update["scheduling_requests"]]
        self.sent.append(tuple(one.allocation_request_id for one in requests))
        return self._next(self.answers, answer())

    def register(self, *words: Any, **more: Any) -> Registered:
        self.calls.append("register")
        return self._next(self.registrations, REGISTERED)

    def finish(self, *words: Any, **more: Any) -> None:
        self.calls.append(("finish", *words))
        self._next(self.answers, None)

    @staticmethod
    def _next(todo: List[Any], otherwise: Any) -> Any:
        found = todo.pop(0) if todo else otherwise
        if isinstance(found, Exception):
            raise found
        return found

    def next_request(self) -> HeartbeatRequest:
        return self.beats.pop(0) if self.beats else HeartbeatRequest()

    def on_answer(self, answer: Allocation) -> bool:
        self.calls.append("answer")
        return self.soon

    def on_resync(self, registered: Optional[Registered]) -> None:
        self.calls.append("restart")

    def on_refused(self, request_id: int, why: str) -> None:
        self.calls.append(("refused", request_id, why))

    def on_shutdown(self, why: str, by_user: bool) -> None:
        self.calls.append(("dismissed", why, by_user))

    def on_lost(self, why: str) -> None:
        self.calls.append(("lost", why))

    def on_superseded(self, why: str) -> None:
        self.calls.append(("superseded", why))


def made(
    script: Script, attempt: int = 1, report: Optional[Callable[[], AppReport]] = None
) -> Heartbeat:
    return Heartbeat(script, AttemptId(APP, attempt), script, report, lambda words: None)  # type: ignore[arg-type]


def error(kind: Any, text: str = "why") -> RemoteError:
    return kind("org.apache.X", text)  # type: ignore[no-any-return]


def test_the_heartbeat_interval() -> None:
    script = Script()
    beating = made(script)
    assert beating.turn() == SLOW_S
    script.soon = True
    assert beating.turn() == FAST_S


def test_what_was_not_answered_is_sent_again_as_it_was() -> None:
    first, second = (
        HeartbeatRequest(RequestUpdate(resource_requests=(resource_request(1),))),
        HeartbeatRequest(RequestUpdate(resource_requests=(resource_request(2),))),
    )
    script = Script([Unreachable("gone"), Unreachable("gone")], beats=[first, second])
    beating = made(script)
    for _ in range(4):
        beating.turn()
    assert script.sent == [(1,), (1,), (1,), (2,)]


@pytest.mark.parametrize("restarted", [error(NotRegistered), answer("RESYNC")])
def test_after_a_restart_it_registers_and_sends_all_again(restarted: Any) -> None:
    script = Script(
        [restarted],
        beats=[
            HeartbeatRequest(RequestUpdate(resource_requests=(resource_request(1),))),
            HeartbeatRequest(RequestUpdate(resource_requests=(resource_request(1),))),
        ],
    )
    beating = made(script)
    assert beating.turn() == 0.0
    assert script.calls == ["register", "restart"]
    beating.turn()
    assert script.sent == [(1,), (1,)]


def test_an_ask_that_can_never_be_is_found_among_others() -> None:
    request = HeartbeatRequest(
        RequestUpdate(
            resource_requests=(resource_request(1), resource_request(2), resource_request(3))
        )
    )
    bad = error(InvalidRequest, "no such label")
    script = Script([bad, answer(), bad, answer()], beats=[request])
    beating = made(script)
    assert beating.turn() == 0.0
    assert script.sent == [(1, 2, 3), (1,), (2,), (3,)]
    assert ("refused", 2, "no such label") in script.calls
    assert script.calls.count("answer") == 2
    beating.turn()
    assert script.sent[-1] == ()


def test_a_single_request_is_the_refused_one() -> None:
    script = Script(
        [error(InvalidRequest, "too large")],
        beats=[HeartbeatRequest(RequestUpdate(resource_requests=(resource_request(7),)))],
    )
    made(script).turn()
    assert script.calls == [("refused", 7, "too large")]


def test_any_error_means_that_constraints_are_unknown() -> None:
    request = HeartbeatRequest(
        RequestUpdate(scheduling_requests=(SchedulingRequest(allocation_request_id=5),))
    )
    script = Script([error(RemoteError, "not enabled")], beats=[request])
    made(script).turn()
    assert script.calls == [("refused", 5, "not enabled")]


def test_known_refusals_are_translated() -> None:
    request = HeartbeatRequest(
        RequestUpdate(scheduling_requests=(SchedulingRequest(allocation_request_id=5),))
    )
    words = "Found non empty SchedulingRequest in AllocateRequest for application=x, but"
    script = Script([error(RemoteError, words)], beats=[request])
    made(script).turn()
    [(_, _, words_sent)] = script.calls
    assert words_sent.startswith("the cluster takes no placement constraints: ")


@pytest.mark.parametrize(
    ("state", "attempt", "expected"),
    [
        ("KILLED", 1, ("dismissed", "enough", True)),
        ("FAILED", 1, ("dismissed", "why (X)", False)),
        (
            "RUNNING",
            2,
            ("superseded", "appattempt_1700000000000_0042_000002 is the master now (why (X))"),
        ),
        ("RUNNING", 1, ("dismissed", "why (X)", False)),
    ],
)
def test_why_a_master_is_not_wanted_any_more(state: str, attempt: int, expected: object) -> None:
    from tony_core.hadoop.yarn.records import APPLICATION_STATES, number_of

    message = ApplicationReport(
        application_id=APP.to_message(),
        diagnostics="enough",
        yarn_application_state=number_of(APPLICATION_STATES, state),
        current_application_attempt_id=AttemptId(APP, attempt).to_message(),
    )
    script = Script([error(AttemptNotFound)])
    made(script, report=lambda: AppReport.from_message(message)).turn()
    assert script.calls == [expected]


def test_a_silent_resource_manager_is_given_up_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script([Unreachable("no answer")] * 3)
    beating = made(script)
    beating.turn()
    assert script.calls == []
    monkeypatch.setattr(heartbeat, "RM_LOST_S", -1.0)
    beating.turn()
    assert script.calls[0][0] == "lost"
    assert "no answer" in script.calls[0][1]


def test_a_registration_whose_answer_was_lost() -> None:
    already = error(AlreadyRegistered)
    first = made(Script(registrations=[already]))
    assert first.register("h", 1, "u").queue == ""
    with pytest.raises(AlreadyRegistered):
        made(Script(registrations=[already]), attempt=2).register("h", 1, "u")


def test_the_end_is_sent_to_a_restarted_resource_manager() -> None:
    script = Script([error(NotRegistered)])
    made(script).finish("SUCCEEDED", "all well", "")
    words_sent = ("finish", "SUCCEEDED", "all well", "")
    assert script.calls == [words_sent, "register", words_sent]
