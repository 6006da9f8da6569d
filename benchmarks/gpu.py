"""What TonY costs a program on a GPU. Needs one, nvidia-smi and PyTorch for CUDA in this Python.

    python benchmarks/gpu.py [--quick] [--runs 12] [--steps 3000] [--only small,large]

Steps a second of a training step on the GPU, under TonY over the same process by hand, in pairs of
which either comes first by turns: a small network, whose step is a row of kernel launches from one
Python thread, and a large one, which keeps the GPU busy. The clock runs from the first step to the
last, synchronised at both ends. Submit to the program's first line with and without a GPU asked
for. From `tony kill` to when the program is gone and its memory on the GPU free. And the processor
time of an executor whose program holds a GPU and sleeps: its own, and that of the nvidia-smi it
starts, with and without `tony.task.gpu-metrics.enabled`, once it looks at the GPU as seldom as in
a long run. All of it takes some twenty minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Tuple

from core_overhead import compare
from measuring import PATHS, TONY, by_turns, figure, median, until
from running import Home, Submitted, alive, began, by_hand, processes_of, program, verb_of

sys.path[:0] = PATHS
from tony_executor.monitoring.nvidia_smi import EARLY_S, EVERY_S  # noqa: E402

SIZES = {"small": (256, 64, 1), "large": (8192, 4096, 5)}  # width, batch, fewer steps by
SLOW_S = 4 * EVERY_S
SELF = str(Path(__file__).resolve())
SETTINGS = {"worker.gpus": 1, "worker.memory": "8g"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help="pairs of each (default 12, quick 2)")
    parser.add_argument("--steps", type=int, help="of the small network (default 3000, quick 100)")
    parser.add_argument("--quick", action="store_true", help="few and short: does it work?")
    parser.add_argument("--only", default="start,kill,small,large,watch", help="some of it")
    args = parser.parse_args()
    runs = args.runs or (2 if args.quick else 12)
    steps = args.steps or (100 if args.quick else 3000)
    with Home() as home:
        chosen = args.only.split(",")
        if "start" in chosen:
            starts(home, runs)
        if "kill" in chosen:
            kills(home, 2 if args.quick else 5)
        for size, (_, _, fewer) in SIZES.items():
            if size in chosen:
                overhead(home, size, runs, steps // fewer)
        if "watch" in chosen:
            for watching in ("true", "false"):
                watched(home, watching, *((5.0, 5.0) if args.quick else (EARLY_S, SLOW_S)))


def overhead(home: Home, size: str, pairs: int, steps: int) -> None:
    """Pairs, as ``core_overhead.py`` has them."""
    rate_by_hand(home, size, 10)  # what compiles kernels or fills caches is charged to no run
    compare(
        f"steps a second on a GPU, {size}, over those by hand", "the same process by hand",
        pairs, steps, partial(rate_by_hand, home, size, steps),
        partial(submitted, home, size, steps),
    )  # fmt: skip


def submitted(home: Home, size: str, steps: int) -> float:
    """Under TonY, by a job of one worker with a GPU."""
    folder = home.folder()
    with Submitted(home, 1, itself("steps", folder, size, steps), **SETTINGS) as job:
        job.ends()
    return float((folder / "rate").read_text())


def rate_by_hand(home: Home, size: str, steps: int) -> float:
    """Steps a second of processes that run without TonY."""
    folder = home.folder()
    (process,) = by_hand(itself("steps", folder, size, steps), 1)
    if process.wait(300):
        sys.exit(f"a process by hand exited with {process.returncode}")
    return float((folder / "rate").read_text())


def starts(home: Home, runs: int) -> None:
    """With and without a GPU, and the bare program."""

    def first_line(**more: object) -> float:
        folder = home.folder()
        with Submitted(home, 1, program("ends", folder), **more) as job:
            job.ends()
            return float(began(folder, 1)[0][0]) - job.began

    def bare() -> float:
        folder = home.folder()
        at = time.time()
        (process,) = by_hand(program("ends", folder), 1)
        process.wait(60)
        return float(began(folder, 1)[0][0]) - at

    ways: Dict[str, Callable[[], float]] = {
        "without a GPU": first_line,
        "with a GPU": lambda: first_line(**{"worker.gpus": 1}),
        "bare": bare,
    }
    found = by_turns(runs, ways)
    for name in list(ways)[:2]:
        figure(
            f"submit to the first line, {name}", median(found[name]), "s",
            floor=median(found["bare"]), floor_is="the same program by Popen", runs=runs,
        )  # fmt: skip


def kills(home: Home, runs: int) -> None:
    """Of a program that holds 4 GB and computes."""

    def ours() -> float:
        free = used_mb()
        folder = home.folder()
        with Submitted(home, 1, itself("grinds", folder), **SETTINGS) as job:
            job.until(lambda: began(folder, 1), "program that computes")
            pid = int(began(folder, 1)[0][1])
            at = time.time()
            subprocess.run(
                [*TONY, "kill", job.app_id], env=home.env, cwd=home.path, check=True,
                capture_output=True,
            )  # fmt: skip
            took = left(pid, free, at)
            job.process.wait(60)
            return took

    def bare() -> float:
        free = used_mb()
        folder = home.folder()
        (process,) = by_hand(itself("grinds", folder), 1)
        until(lambda: began(folder, 1), "a program that computes")
        at = time.time()
        process.terminate()
        process.wait(60)
        return left(process.pid, free, at)

    found = by_turns(runs, {"ours": ours, "bare": bare})
    figure(
        "kill to the GPU's memory free", median(found["ours"]), "s",
        floor=median(found["bare"]), floor_is="TERM to the same program by hand",
        bar=2.0, runs=runs, most=max(found["ours"]),
    )  # fmt: skip


def left(pid: int, free: int, at: float) -> float:
    """Seconds until the process is gone and has nothing on the GPU."""
    until(lambda: not alive(pid), "the process's end")
    until(lambda: used_mb() <= free + 50, "its memory to be free")
    return time.time() - at


def watched(home: Home, watching: str, early_s: float, calm_s: float) -> None:
    """An executor's processor time, and that of its children that it has waited for."""
    folder = home.folder()
    settings = {**SETTINGS, "task.gpu-metrics.enabled": watching}
    with Submitted(home, 1, itself("holds", folder), **settings) as job:
        job.until(lambda: began(folder, 1), "program that holds a GPU")
        time.sleep(early_s + min(calm_s, 12.0))
        (pid,) = (pid for pid in processes_of(job.app_id) if verb_of(pid) == "executor")
        before, at = spent(pid), time.monotonic()
        time.sleep(calm_s)
        took = time.monotonic() - at
        own, children = ((b - a) / took for a, b in zip(before, spent(pid), strict=True))
    word = "watched" if watching == "true" else "not watched"
    figure(
        f"an idle executor with a GPU, {word}: share of a core", own + children, "cores",
        its_own=own, nvidia_smi=children, over_s=took,
    )  # fmt: skip


def spent(pid: int) -> Tuple[float, float]:
    """Seconds of its own, by the scheduler's clock, and of its children that have ended."""
    ticks = os.sysconf("SC_CLK_TCK")
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(
        int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )
    return own / 1e9, (int(words[13]) + int(words[14])) / ticks


def used_mb() -> int:
    """The memory taken on all GPUs."""
    argv = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.check_output(argv, text=True).split()))


def itself(verb: str, folder: Path, *words: object) -> List[str]:
    """The command of a task: this file."""
    return [sys.executable, SELF, "--be", verb, str(folder), *map(str, words)]


# ------------------------------------------------------------------ what the task runs


def be_program(verb: str, folder: str, *words: str) -> None:
    """``steps SIZE COUNT``, or ``grinds`` or ``holds`` until it is ended."""
    import torch

    if verb == "steps":
        Path(folder, "rate").write_text(f"{steps(words[0], int(words[1]))}")
        return
    held = torch.zeros(1 << 30, device="cuda")  # 4 GB
    a = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    Path(folder, "began-0-0").write_text(f"{time.time()} {os.getpid()}")
    while verb == "grinds":
        for _ in range(50):
            held[0] = (a @ a)[0, 0]
        torch.cuda.synchronize()
    time.sleep(600)


def steps(size: str, count: int) -> float:
    """So many of them, after a few that are not counted; how many a second."""
    import torch
    from torch import nn

    width, batch, _ = SIZES[size]
    torch.manual_seed(0)
    layers = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(batch, width, device="cuda", dtype=torch.bfloat16)
    y = torch.randn(batch, 1, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    for _ in range(max(20, count // 10)):
        step()
    torch.cuda.synchronize()
    at = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return count / (time.perf_counter() - at)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be"]:
        be_program(*sys.argv[2:])
    else:
        main()
