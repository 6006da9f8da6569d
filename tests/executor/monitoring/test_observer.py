"""How often what a program reports, and what it uses, is passed on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.protocol.messages import Measured, Reported, Stalled, Start
from tony_core.protocol.reactor import Reactor
from tony_executor.monitoring.nvidia_smi import GpuMetrics
from tony_executor.monitoring.observer import REPORTS_EVERY_S, Due, ProgramObserver, Surroundings

SAMPLE_S = 5.0


class Quickly(Reactor):
    """Its time passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def _wait(self) -> Optional[float]:
        self.at += super()._wait() or 0.0
        return 0.0


class Observed:
    """An observer of a program that reports ten times a second, over some time."""

    def __init__(self, folder: Path, interval_s: float) -> None:
        self.reactor = Quickly()
        self.path = folder / "reports"
        self.sent: List[Tuple[float, Any]] = []
        self.step = 0
        nothing: Any = frozenset
        around = Surroundings(
            self.reactor, self._emit, nothing, nothing, GpuMetrics(self.reactor, {}),
            lambda: SAMPLE_S, lambda text: None,
        )  # fmt: skip
        self.observer = ProgramObserver(around, 0, str(self.path), interval_s)

    def _emit(self, event: Any) -> None:
        self.sent.append((event.at, event.message))

    def reports(self, until: float = 1e9) -> None:
        """Report a step each 0.1 s."""
        if self.reactor.now() < until:
            self.step += 1
            self.write({"step": self.step, "metrics": {"loss": 1 / self.step}})
            self.reactor.call_later(0.1, self.reports, until)

    def write(self, line: Dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def runs(self, seconds: float, *then: Callable[[], None]) -> None:
        for each in then:
            self.reactor.call_later(seconds / 2, each)
        self.reactor.call_later(seconds, self.reactor.stop)
        self.reactor.run()

    def of(self, kind: type) -> List[Tuple[float, Any]]:
        return [(at, each) for at, each in self.sent if isinstance(each, kind)]


@pytest.mark.parametrize("interval_s", [0.0, 0.02, 20.0, 25.0])
def test_reports_and_measures_are_sent_as_seldom_as_the_master_wants(
    tmp_path: Path, interval_s: float
) -> None:
    one = Observed(tmp_path, interval_s)
    one.reports()
    one.runs(400.0)
    one.observer.close()
    for kind, own_s in ((Reported, REPORTS_EVERY_S), (Measured, SAMPLE_S)):
        times = [at for at, _ in one.of(kind)]
        expected = 400.0 / max(interval_s, own_s)
        assert expected * 0.7 <= len(times) <= expected * 1.4 + 2, kind
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert min(gaps[1:]) >= interval_s, kind
    at, first = one.of(Reported)[0]
    assert at <= 2 * REPORTS_EVERY_S and first.step <= 10, "a session's first step is known"


def test_all_is_read_though_it_is_sent_seldom_and_the_newest_counts(tmp_path: Path) -> None:
    one = Observed(tmp_path, 20.0)
    one.reports()
    one.runs(200.0)
    assert one.of(Reported)[-1][1].step >= one.step - 210
    one.observer.read_rest()
    one.observer.close()
    assert one.of(Reported)[-1][1].step == one.step, "before the end all is sent"


@pytest.mark.parametrize("line", [{"saved": 7}, {"result": "hdfs:///models/7"}])
def test_what_restarts_and_users_count_on_is_sent_at_once(
    tmp_path: Path, line: Dict[str, Any]
) -> None:
    one = Observed(tmp_path, 25.0)
    one.reports()
    one.runs(80.0, lambda: one.write(line))
    one.observer.close()
    (sent,) = [at for at, each in one.of(Reported) if each.saved == 7 or each.result]
    assert 40.0 <= sent <= 42.0


def test_the_last_step_is_sent_before_the_stall(tmp_path: Path) -> None:
    one = Observed(tmp_path, 25.0)
    logs = {"stdout": str(tmp_path / "stdout"), "stderr": str(tmp_path / "stderr")}
    one.observer.watch_stalls(Start(0, "true", {}, {}, stall_timeout_s=10.0), logs, {})
    one.reports(until=30.0)
    one.runs(60.0)
    one.observer.close()
    kinds = [type(each) for _, each in one.sent if isinstance(each, (Reported, Stalled))]
    assert Stalled in kinds
    before = [each for _, each in one.sent[: [type(m) for _, m in one.sent].index(Stalled)]]
    assert [each.step for each in before if isinstance(each, Reported)][-1] == one.step


@given(st.lists(st.floats(0.0, 60.0), max_size=60), st.floats(0.0, 60.0))
def test_due_is_at_once_the_first_time_and_then_once_in_an_interval(
    pauses: List[float], interval_s: float
) -> None:
    due, times = Due(interval_s), []
    for now in itertools.accumulate([0.0, *pauses]):
        if due.take(now):
            times.append(now)
    assert times[0] == 0.0
    assert all(
        after - before >= interval_s * 0.999 - 1e-9
        for before, after in itertools.islice(itertools.pairwise(times), 1, None)
    )
