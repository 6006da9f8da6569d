"""The programs of the retraining pipeline, each by itself: what goes in, what comes out."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest

from tests.conftest import CHECKOUT
from tests.dags.retraining import PROGRAMS

NAMES = ("views", "carts")


def run(
    name: str, *arguments: object, text: str = "", env: Optional[Mapping[str, str]] = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAMS / name), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT / "program"), **(env or {})},
        timeout=60,
    )


def event(visit: str, number: int, kind: str = "view", seconds: float = 2.0) -> Dict[str, Any]:
    return {"id": f"e{number}", "visit": visit, "at": number, "kind": kind, "seconds": seconds}


def cleaned(lines: List[str]) -> List[List[str]]:
    """Through the mapper, a sort and the reducer."""
    mapped = run("clean_map.py", text="\n".join(lines) + "\n")
    assert mapped.returncode == 0, mapped.stderr
    # By the visit alone, as Hadoop sorts: the order within one is anything.
    found = sorted(mapped.stdout.splitlines(), key=lambda line: (line.split("\t")[0], line[::-1]))
    reduced = run("clean_reduce.py", text="\n".join(found) + "\n")
    assert reduced.returncode == 0, reduced.stderr
    return [line.split("\t") for line in reduced.stdout.splitlines()]


class TestCleaning:
    def test_events_stay_once_and_in_order(self) -> None:
        lines = [json.dumps(event("a", number)) for number in (3, 1, 2, 1)]
        lines.append(json.dumps(event("b", 9, "pay")))
        assert cleaned(lines) == [
            ["a", "1", "view", "2.0"],
            ["a", "2", "view", "2.0"],
            ["a", "3", "view", "2.0"],
            ["b", "9", "pay", "2.0"],
        ]

    def test_robots_go(self) -> None:
        lines = [json.dumps(event("robot", number)) for number in range(201)]
        lines.append(json.dumps(event("a", 1)))
        assert [row[0] for row in cleaned(lines)] == ["a"]

    @pytest.mark.parametrize(
        "change",
        [
            {"kind": "nonsense"},
            {"kind": ["view"]},
            {"seconds": -1},
            {"seconds": "many"},
            {"seconds": float("nan")},
            {"at": None},
            {"at": float("inf")},
            {"visit": ""},
            {"visit": "a\tb"},
            {"visit": 7},
            {"id": "a\nb"},
        ],
        ids=str,
    )
    def test_an_event_that_is_none_goes_and_is_counted(self, change: Dict[str, Any]) -> None:
        done = run("clean_map.py", text=json.dumps({**event("a", 1), **change}) + "\n")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "reporter:counter:cleaning,broken lines,1\n"

    def test_half_a_line_goes(self) -> None:
        done = run("clean_map.py", text='{"id": "e1", "vis\n[1]\n7\n\n')
        assert (done.returncode, done.stdout, done.stderr.count("broken")) == (0, "", 4)

    def test_data_to_try_it_on_has_all_of_that(self, tmp_path: Path) -> None:
        for name in ("one", "again"):
            assert run("make_data.py", tmp_path / name, "--visits", 30).returncode == 0
        assert (tmp_path / "one").read_bytes() == (tmp_path / "again").read_bytes()
        lines = (tmp_path / "one").read_text().splitlines()
        rows = cleaned(lines)
        assert {row[0] for row in rows} == {f"d1-v{number:06d}" for number in range(30)}
        assert {row[2] for row in rows} == {"view", "search", "cart", "pay"}
        assert len(rows) < len(set(lines)) < len(lines)

    def test_without_hadoop_it_names_the_setting(self, tmp_path: Path) -> None:
        for name, word in (("clean", "HADOOP_HOME"), ("features", "SPARK_HOME")):
            done = subprocess.run(
                ["bash", PROGRAMS / name, "hdfs:///from", "hdfs:///to"],
                env={"PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
            )
            assert (done.returncode, done.stdout) == (1, "")
            assert f"set {word}, or put" in done.stderr


def features(folder: Path, rows: int = 120) -> Path:
    """As the Spark job leaves them: who has filled a cart pays."""
    draw = random.Random(3)
    head = ",".join((*NAMES, "paid"))
    for place, number in (("train/part-0", rows), ("train/part-1", rows), ("eval/part-0", rows)):
        path = folder / f"{place}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [head]
        for _ in range(number):
            views, carts = draw.randrange(9), draw.randrange(4)
            lines.append(f"{views}.0,{carts}.0,{int(carts + draw.gauss(0, 0.3) > 1.5)}")
        path.write_text("\n".join(lines) + "\n")
    scale = {"mean_views": 4.0, "deviation_views": 2.6, "mean_carts": 1.5, "deviation_carts": 1.1}
    (folder / "scale").mkdir()
    (folder / "scale" / "part-0.json").write_text(json.dumps(scale) + "\n")
    (folder / "train" / "_SUCCESS").touch()
    return folder


class TestTraining:
    def test_by_hand(self, tmp_path: Path) -> None:
        model = self.trained(tmp_path, features(tmp_path / "features"), {})
        metrics = json.loads((model / "metrics.json").read_text())
        assert metrics["accuracy"] > 0.9
        assert metrics["application_id"] == ""

    def test_a_session_that_was_started_again_goes_on(self, tmp_path: Path) -> None:
        here = features(tmp_path / "features")
        first = self.trained(tmp_path, here, {}, "--steps", 20, name="short")
        second = self.trained(tmp_path, here, {}, "--steps", 60, name="on")
        assert "goes on at step 20" in self.output
        whole = self.trained(tmp_path / "afresh", here, {}, "--steps", 60, name="whole")
        assert "goes on" not in self.output
        weights = [self.weights(model) for model in (first, second, whole)]
        assert weights[1] == pytest.approx(weights[2])
        assert weights[0] != pytest.approx(weights[2])

    def trained(
        self,
        folder: Path,
        here: Path,
        env: Mapping[str, str],
        *more: object,
        name: str = "model",
    ) -> Path:
        folder.mkdir(exist_ok=True)
        env = {"TONY_CHECKPOINT_DIR": str(folder / "checkpoints"), **env}
        words = ("--features", here, "--model", folder / name, *more)
        done = run("train/train.py", *words, env=env)
        assert done.returncode == 0, done.stderr
        self.output = done.stdout
        return folder / name

    def weights(self, model: Path) -> List[float]:
        found: List[float] = json.loads((model / "model.json").read_text())["weights"]
        assert all(map(math.isfinite, found))
        return found

    @pytest.mark.slow
    def test_on_several_tasks_the_model_is_the_same(self, tmp_path: Path, tony_on: Any) -> None:
        here = features(tmp_path / "features")
        uninterrupted = self.weights(self.trained(tmp_path, here, {}, name="alone"))
        tony = tony_on()
        for workers in (1, 2):  # with two, one of the three tasks has nothing to read
            model = tmp_path / f"model-{workers}"
            conf = {
                "tony.chief.instances": 1,
                "tony.worker.instances": workers,
                "tony.chief.memory": "200m",
                "tony.worker.memory": "200m",
                "tony.application.checkpoint-dir": str(tmp_path / "kept"),
            }
            command = f"{sys.executable} train.py --features {here} --model {model}"
            words = ("--src_dir", str(PROGRAMS / "train"), "--executes", command)
            tony.submit(*words, conf=conf).ends(0)
            assert self.weights(model) == pytest.approx(uninterrupted)


class TestGate:
    @pytest.fixture
    def judge(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.syspath_prepend(str(PROGRAMS))
        import evaluate  # type: ignore[import-not-found]

        monkeypatch.delitem(sys.modules, "evaluate")
        monkeypatch.delitem(sys.modules, "published")
        return evaluate.judge

    @pytest.mark.parametrize(
        ("metrics", "before", "good", "why"),
        [
            ({"accuracy": 0.8}, None, True, "good enough"),
            ({"accuracy": 0.79}, None, False, "below 0.8"),
            ({"accuracy": 0.9}, {"accuracy": 0.91}, True, "good enough"),
            ({"accuracy": 0.85}, {"accuracy": 0.9}, False, "worse than 0.9000"),
            ({"loss": 0.1}, None, False, "has reported no accuracy"),
            ({"accuracy": 0.9}, {}, True, "good enough"),
        ],
    )
    def test_who_passes(self, judge: Any, metrics: Any, before: Any, good: bool, why: str) -> None:
        found, reason = judge(metrics, before)
        assert found is good
        assert why in reason
