"""What is measured of a program, and what it reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import (
    Heartbeat,
    Measured,
    Reported,
)
from tony_executor.monitoring.telemetry import ReportFile


class TestMeasures:
    def test_of_the_whole_tree(self, master: Master, executor: Executor) -> None:
        master.prepare()
        master.start(
            "python3 -c 'import time, threading; x = bytearray(50 << 20);"
            "threading.Thread(target=time.sleep, args=(600,), daemon=True).start();"
            "t = time.time()\n"
            "while True: pass' & setsid python3 -c 'x = bytearray(50 << 20);"
            "import time; time.sleep(600)' & wait"
        )
        # It wants a whole core, of which it gets some percent on a busy machine.
        least = {"cpu_percent": 2.5, "rss_mb": 100, "threads": 4}

        def whole() -> List[Measured]:
            return [
                found
                for found in master.received(Measured)
                if all(found.values[name] >= value for name, value in least.items())
            ]

        assert master.until(whole)[0].values["processes"] == 3

    def test_nothing_is_measured_when_nothing_runs(
        self, master: Master, executor: Executor
    ) -> None:
        master.run_program("exit 0")
        master.messages.clear()
        master.until(lambda: len(master.received(Heartbeat)) > 4)
        assert not master.received(Measured)


class TestReports:
    def test_through_a_real_program(self, master: Master, executor: Executor) -> None:
        code = (
            "import tony, time\n"
            "for step in range(20):\n"
            "    tony.report(progress=step / 20, step=step, metrics={'loss': 1 / (step + 1)})\n"
            "    time.sleep(0.05)\n"
            "tony.report(progress=1.0, metrics={'accuracy': 0.9})\n"
        )
        (executor.work / "train.py").write_text(code)
        ended = master.run_program("python3 train.py")
        assert ended.exit_code == 0, ended
        reported = master.received(Reported)
        assert len(reported) >= 2
        assert reported[-1].progress == 1.0
        assert reported[-1].metrics["accuracy"] == 0.9
        assert [m.step for m in reported if m.step is not None][-1] == 19
        # All of it is sent before the end.
        assert master.messages.index(reported[-1]) < master.messages.index(ended)

    def write(self, path: Path, text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def test_what_stands_in_the_file_is_taken_for_what_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 3)
        assert reports.read_new() is None
        self.write(path, '{"progress": 0.5, "metrics": {"a": 1, "b": "x", "c": NaN, "d": true}}\n')
        self.write(path, 'nonsense\n[1]\n{"step": "x"}\n{"metrics": 5}\n{"step": 1e400}\n')
        self.write(
            path,
            '{"saved": "x"}\n{"saved": 1e400}\n{"saved": 4}\n'
            '{"step": 1e19}\n{"step": -9223372036854775808}\n',
        )
        self.write(path, "[" * 100_000 + "\n")
        self.write(path, '{"metrics": {"a": 2}, "step": 4}\n{"progress": 0.')
        assert reports.read_new() == Reported(3, 0.5, {"a": 2.0}, 4, "", 4)
        assert reports.read_new() is None
        self.write(path, "6}\n")
        assert reports.read_new() == Reported(3, 0.6, {}, None)

    def test_the_last_result_counts_and_one_too_large_is_passed_over(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 0)
        self.write(path, '{"result": {"a": 1}}\n{"result": [1, null]}\n{"result": NaN}\n')
        self.write(path, f'{{"result": "{"x" * 70_000}"}}\n')
        assert reports.read_new() == Reported(0, None, {}, None, "[1,null]")
        self.write(path, '{"result": null}\n')
        assert reports.read_new() == Reported(0, None, {}, None, "null")

    def test_too_many_names_are_not_passed_on(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 0)
        seen: Dict[str, float] = {}
        for start in range(0, 2000, 100):
            values = ", ".join(f'"m{n}": 1' for n in range(start, start + 100))
            self.write(path, f'{{"metrics": {{{values}}}}}\n')
            news = reports.read_new()
            seen.update(news.metrics if news is not None else {})
        assert len(seen) == 500

    def test_the_file_stays_small(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 0)
        newest = None
        for step in range(20_000):
            self.write(path, f'{{"step": {step}, "metrics": {{"a-rather-long-name": 1.5}}}}\n')
            if step % 500 == 499:
                newest = reports.read_new() or newest
        assert newest is not None and newest.step == 19_999
        assert path.stat().st_size < 400_000

    def test_a_link_or_a_fifo_in_its_place_is_not_followed(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        path.symlink_to("/etc/passwd")
        assert ReportFile(str(path), 0).read_new() is None
        path.unlink()
        os.mkfifo(path)
        assert ReportFile(str(path), 0).read_new() is None
