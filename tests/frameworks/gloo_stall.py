"""Ranks of torch.distributed (gloo) that add numbers; in session 0 one stops joining at a step.

``gloo_stall.py HOW [silent]``: the rank ``sleep``s, ``spin``s, or reads from a pipe (``read``)
instead. With ``silent`` only rank 0 reports steps and saves, and all ranks spin in the collective,
as they do with NCCL.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import tony

AT, LAST = 5, 9
SILENT = "silent" in sys.argv


def load_batch(step: int) -> None:
    """What the last rank never returns from, in the first session."""
    if step != AT or tony.task().session or tony.task().index != tony.task().count - 1:
        return
    if sys.argv[1] == "sleep":
        time.sleep(600)
    elif sys.argv[1] == "spin":
        while True:
            pass
    else:
        reading, _ = os.pipe()
        os.read(reading, 1)


def all_reduce(value: torch.Tensor) -> None:
    """Add the ranks' values; this waits as NCCL does, at full load."""
    work = dist.all_reduce(value, async_op=True)
    while not work.is_completed():
        pass
    work.wait()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    index = 0 if SILENT else tony.task().index
    saved = tony.checkpoints(f"{tony.task().checkpoint_dir}/{index}")
    newest = saved.latest()
    for step in range(newest[0] + 1 if newest else 0, LAST + 1):
        load_batch(step)
        value = torch.ones(10)
        (all_reduce if SILENT else dist.all_reduce)(value)
        assert value[0].item() == dist.get_world_size()
        print("did", step, flush=True)
        if index == tony.task().index:
            tony.report(step=step)
            saved.save(step, b"weights")
        time.sleep(0.1)
    dist.destroy_process_group()


main()
