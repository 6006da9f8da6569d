"""When a program stands still: time, reports and observations in, verdicts out."""

from __future__ import annotations

import itertools
from typing import List, Optional, Tuple

from hypothesis import given
from hypothesis import strategies as st

from tony_core.protocol.messages import Reported
from tony_executor.monitoring.stall import (
    Observation,
    Stall,
    StallJudge,
    StallOver,
    Verdict,
    look_interval,
)

TIMEOUT_S = 80.0
PAUSE_S = look_interval(TIMEOUT_S)


def step(number: int) -> Reported:
    return Reported(0, None, {}, number)


class Program:
    """A program that is looked at as the watch does."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.judge = StallJudge(TIMEOUT_S, self.now)
        self.cpu_s = 0.0
        self.log_bytes = 0
        self.verdicts: List[Verdict] = []

    def report(self, reported: Reported) -> None:
        self._take(self.judge.report(reported, self.now))

    def passes(
        self,
        seconds: float,
        cpu: float = 0.0,  # of a core
        logs: int = 0,  # bytes for each look
        stopped: bool = False,
        gpu: float = 0.0,
    ) -> Program:
        for _ in range(int(seconds / PAUSE_S)):
            self.now += PAUSE_S
            self.cpu_s += cpu * PAUSE_S
            self.log_bytes += logs
            seen = Observation(self.now, self.cpu_s, self.log_bytes, stopped, gpu)
            self._take(self.judge.observe(seen))
        return self

    def _take(self, verdict: Verdict) -> None:
        if verdict is not None:
            self.verdicts.append(verdict)

    @property
    def kinds(self) -> List[str]:
        return [each.kind if isinstance(each, Stall) else "moves" for each in self.verdicts]


def stepping() -> Program:
    program = Program()
    program.report(step(1))
    return program


def test_steps_that_stop_are_a_stall_whatever_processors_logs_and_gpus_do() -> None:
    program = stepping().passes(2 * TIMEOUT_S, cpu=8.0, logs=100, gpu=100.0)
    assert program.kinds == ["steps"]
    found = program.verdicts[0]
    assert isinstance(found, Stall) and found.step == 1 and found.cpu_percent == 800.0
    assert TIMEOUT_S <= found.still_s <= TIMEOUT_S + PAUSE_S


def test_the_next_step_ends_it_and_another_stall_may_follow() -> None:
    program = stepping().passes(2 * TIMEOUT_S)
    program.report(step(2))
    assert program.kinds == ["steps", "moves"]
    program.passes(2 * TIMEOUT_S)
    assert program.kinds == ["steps", "moves", "steps"]


def test_a_slow_but_healthy_program_does_not_stall() -> None:
    program = Program()
    for number in range(20):
        program.report(step(number))
        program.passes(TIMEOUT_S - PAUSE_S)
    assert program.verdicts == []


def test_the_same_step_reported_again_is_no_step_but_a_checkpoint_or_progress_is() -> None:
    program = stepping().passes(TIMEOUT_S / 2)
    program.report(step(1))
    program.passes(TIMEOUT_S / 2)
    assert program.kinds == ["steps"]
    program.report(Reported(0, None, {}, saved=1))
    program.passes(TIMEOUT_S / 2)
    program.report(Reported(0, 0.5, {}))
    program.passes(TIMEOUT_S / 2)
    assert program.kinds == ["steps", "moves"]


def test_a_lower_step_is_a_step() -> None:
    program = stepping()
    for number in (9, 3, 2, 1, 0):  # from an older checkpoint, for example
        program.report(step(number))
        program.passes(TIMEOUT_S - PAUSE_S)
    assert program.verdicts == []


def test_metrics_without_more_are_no_step() -> None:
    program = stepping().passes(TIMEOUT_S / 2)
    program.report(Reported(0, None, {"loss": 0.1}))
    assert program.passes(TIMEOUT_S / 2).kinds == ["steps"]


def test_a_silent_program_that_computes_or_logs_or_uses_its_gpu_does_not_stall() -> None:
    assert Program().passes(5 * TIMEOUT_S, cpu=0.05).verdicts == []
    assert Program().passes(5 * TIMEOUT_S, logs=1).verdicts == []
    assert Program().passes(5 * TIMEOUT_S, gpu=40.0).verdicts == []


def test_a_silent_program_that_sleeps_stalls_and_little_work_is_none() -> None:
    assert Program().passes(2 * TIMEOUT_S).kinds == ["quiet"]
    assert Program().passes(2 * TIMEOUT_S, cpu=0.004).kinds == ["quiet"]


def test_what_we_write_into_its_log_is_not_its_output() -> None:
    program = Program().passes(TIMEOUT_S)
    program.log_bytes += 5000
    program.judge.note_own_output(5000)
    assert program.passes(TIMEOUT_S).kinds == ["quiet"]
    program.log_bytes += 1
    assert program.passes(PAUSE_S).kinds == ["quiet", "moves"]


def test_after_all_progress_only_the_second_rule_counts() -> None:
    program = stepping()
    program.report(Reported(0, 1.0, {}, 2))
    assert program.passes(3 * TIMEOUT_S, cpu=0.5).verdicts == []


def test_a_stopped_program_is_suspended_and_has_its_whole_time_after() -> None:
    program = stepping().passes(2 * TIMEOUT_S, stopped=True)
    assert program.kinds == ["suspended"]
    program.passes(TIMEOUT_S - 2 * PAUSE_S)
    assert program.kinds == ["suspended", "moves"]
    assert program.passes(3 * PAUSE_S).kinds == ["suspended", "moves", "steps"]


def test_a_frozen_container_or_a_suspended_machine_is_no_stall() -> None:
    program = stepping().passes(TIMEOUT_S / 2)
    program.now += 100_000.0
    program.passes(PAUSE_S)
    assert program.verdicts == []


def test_a_clock_that_is_set_back_counts_nothing() -> None:
    program = stepping().passes(TIMEOUT_S / 2)
    program.now -= 500.0
    program.passes(TIMEOUT_S / 4)
    assert program.verdicts == []


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["step", "same", "metrics", "idle", "busy", "log", "stop", "gap", "back"]),
        st.integers(1, 12),
    ),
    max_size=60,
)


@given(ACTS)
def test_verdicts_alternate_and_no_stall_comes_before_its_time(
    acts: List[Tuple[str, int]],
) -> None:
    program = Program()
    number = 0
    quiet_s: Optional[float] = 0.0  # how long nothing that counts as a move can have happened
    for act, count in acts:
        before = len(program.verdicts)
        if act == "step":
            number += 1
            program.report(step(number))
            quiet_s = 0.0
        elif act == "same":
            program.report(step(number))
        elif act == "metrics":
            program.report(Reported(0, None, {"a": 1.0}))
        elif act == "gap":
            program.now += 10_000.0 * count
            program.passes(PAUSE_S)
            quiet_s += 2 * PAUSE_S
        elif act == "back":
            program.now -= 1000.0 * count
            program.passes(PAUSE_S)
            quiet_s += 2 * PAUSE_S
        else:
            program.passes(
                count * PAUSE_S,
                cpu=1.0 if act == "busy" else 0.0,
                logs=3 if act == "log" else 0,
                stopped=act == "stop",
            )
            quiet_s += count * PAUSE_S
        new = program.kinds[before:]
        assert not {"steps", "quiet", "suspended"} & set(new) or quiet_s >= TIMEOUT_S
    for first, second in itertools.pairwise(program.kinds):
        assert (first == "moves") != (second == "moves")
    assert program.kinds[:1] != ["moves"]
    assert all(isinstance(each, (Stall, StallOver)) for each in program.verdicts)
