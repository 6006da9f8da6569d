"""What the examples share: options, data, checkpoints, progress, and the verdict.

A `Course` is one training run. Its folder (below TONY_CHECKPOINT_DIR, by the job's id)
holds the checkpoints, the loss of every step (steps.jsonl) and at the end result.json.
Every session of a job sees the same folder, so a restarted one goes on where the last
checkpoint was written. Only the chief writes; everybody reads.

Runs under TonY and by hand alike; needs numpy, and TensorBoard only to write its events.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

import tony


def options(description: str, steps: int) -> argparse.Namespace:
    """The options that every example has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps, help="how long to train")
    parser.add_argument("--batch", type=int, default=256, help="points a step, over all processes")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--data", default="points.csv")
    parser.add_argument("--log-dir", help="where TensorBoard's events go; a folder for each job")
    parser.add_argument("--step-sleep", type=float, default=0.0, help="seconds, to see it run")
    return parser.parse_args()


def load(path: str) -> Tuple[np.ndarray, np.ndarray]:
    """Features and target, as float32."""
    table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    return table[:, :-1], table[:, -1:]


def batch_at(step: int, x: np.ndarray, y: np.ndarray, size: int, rank: int, ranks: int) -> Any:
    """This process's share of the step's batch: the same after a restart."""
    chosen = np.random.default_rng(step).choice(len(x), size, replace=False)[rank::ranks]
    return x[chosen], y[chosen]


def first_weights(inputs: int, hidden: int = 32) -> Dict[str, np.ndarray]:
    """A small network with one hidden layer, the same in every process."""
    draw = np.random.default_rng(0)
    return {
        "w1": (draw.standard_normal((inputs, hidden)) / np.sqrt(inputs)).astype(np.float32),
        "b1": np.zeros(hidden, np.float32),
        "w2": (draw.standard_normal((hidden, 1)) / np.sqrt(hidden)).astype(np.float32),
        "b2": np.zeros(1, np.float32),
    }


class Course:
    """One training run; see the module."""

    def __init__(self, args: argparse.Namespace, chief: bool) -> None:
        self.args = args
        self.chief = chief
        job = os.environ.get("JOB_ID", "by-hand")
        self.folder = Path(os.environ.get("TONY_CHECKPOINT_DIR", "checkpoints")) / job
        self.session = int(os.environ.get("SESSION_ID", "0"))
        self._saved = tony.checkpoints(str(self.folder), keep=2)
        self._start = 0
        self._is_warned = False
        self._events: Any = None
        if chief:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._events = _events(Path(args.log_dir) / job) if args.log_dir else None

    # ---------------------------------------------------------------- checkpoints

    def resume(self, restore: Callable[[str], None]) -> int:
        """Restore the newest checkpoint, if there is one; the step to go on with."""
        newest = self._saved.latest()
        if newest is not None:
            self._start, path = newest
            restore(path)
            print(f"session {self.session}: resumed at step {self._start}", flush=True)
        return self._start

    def save(self, done: int, write: Callable[[str], None]) -> None:
        """Every so many steps, by the chief; `write` is given the path to write to.

        And once when the scheduler is about to take a container of the job back.
        """
        if not self.chief:
            return
        is_due = done % self.args.checkpoint_every == 0 or done == self.args.steps
        was_warned, self._is_warned = self._is_warned, tony.preemption() is not None
        if is_due or (self._is_warned and not was_warned):
            self._saved.save(done, write)

    # ---------------------------------------------------------------- progress

    def report(self, step: int, loss: float) -> None:
        """A step is done; call it before `save`."""
        if self.chief:
            line = {"session": self.session, "step": step, "loss": loss}
            with open(self.folder / "steps.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
            if self._events is not None:
                self._events(step, {"loss": loss})
            tony.report(
                progress=(step + 1) / self.args.steps, step=step + 1, metrics={"loss": loss}
            )
            if step % 20 == 0 or step + 1 == self.args.steps:
                print(f"step {step:4d}  loss {loss:.5f}", flush=True)
        if self.args.step_sleep:
            time.sleep(self.args.step_sleep)

    def finish(self, ranks: int) -> None:
        """Write result.json; exit with 1 unless the loss has fallen by half."""
        if not self.chief:
            return
        lines = _read(self.folder / "steps.jsonl")
        first = float(np.mean([line["loss"] for line in lines[:5]]))
        last = float(np.mean([line["loss"] for line in lines[-5:]]))
        result = {
            "first_loss": first,
            "last_loss": last,
            "steps": self.args.steps,
            "resumed_at": self._start,
            "sessions": self.session + 1,
            "processes": ranks,
        }
        beside = self.folder / ".result.json"
        beside.write_text(json.dumps(result, indent=1) + "\n")
        beside.rename(self.folder / "result.json")
        newest = self._saved.latest()
        tony.result({**result, "model": newest[1] if newest else None})
        print(f"loss {first:.5f} -> {last:.5f}; {self.folder / 'result.json'}", flush=True)
        if not last < first / 2:
            print("the loss did not fall by half", file=sys.stderr)
            raise SystemExit(1)


def save_arrays(arrays: Dict[str, Any]) -> Callable[[str], None]:
    """Writes named arrays in numpy's format."""

    def write(path: str) -> None:
        with open(path, "wb") as file:
            np.savez(file, **{name: np.asarray(value) for name, value in arrays.items()})

    return write


def load_arrays(path: str) -> Dict[str, np.ndarray]:
    """What `save_arrays` wrote."""
    with np.load(path) as stored:
        return dict(stored)


def _read(path: Path) -> List[Dict[str, Any]]:
    """The whole lines of a JSON lines file; a killed chief may have left half a one."""
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _events(folder: Path) -> Optional[Callable[[int, Dict[str, float]], None]]:
    """Writes TensorBoard's events by its own writer, without TensorFlow."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        print("no TensorBoard in this environment: no events", file=sys.stderr)
        return None
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder), flush_secs=2)

    def write(step: int, values: Dict[str, float]) -> None:
        summary = Summary(
            value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        )
        writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))
        if step % 10 == 0:
            writer.flush()

    return write
