"""How often a program's reports are passed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Optional

import pytest

from tony_core.protocol.messages import Reported
from tony_core.protocol.reactor import Reactor
from tony_executor.monitoring.nvidia_smi import GpuMetrics
from tony_executor.monitoring.observer import REPORTS_EVERY_S, ProgramObserver, Surroundings


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


@pytest.mark.parametrize("interval_s", [0.0, 0.02, 10.0])
def test_reports_go_on_as_seldom_as_the_master_wants_them(
    tmp_path: Path, interval_s: float
) -> None:
    reactor, path, taken = Quickly(), tmp_path / "reports", []  # type: ignore[var-annotated]

    def emit(event: Any) -> None:
        if isinstance(event.message, Reported):
            taken.append((event.at, event.message.step))

    def report() -> None:
        with path.open("a") as file:
            file.write(json.dumps({"step": int(reactor.now() * 10), "time": reactor.now()}) + "\n")
        reactor.call_later(0.1, report)

    nothing: Any = frozenset
    around = Surroundings(
        reactor, emit, nothing, nothing, GpuMetrics(reactor, {}), lambda: 5.0,
        lambda: interval_s, print,
    )  # fmt: skip
    observer = ProgramObserver(around, 0, str(path))
    report()
    reactor.call_later(100.0, reactor.stop)
    reactor.run()
    observer.close()
    expected = 100.0 / max(interval_s, REPORTS_EVERY_S)
    assert expected * 0.7 <= len(taken) <= expected + 2
    steps: List[int] = [step for _, step in taken]
    assert steps == sorted(steps) and steps[-1] >= 900, "the newest are passed on"
