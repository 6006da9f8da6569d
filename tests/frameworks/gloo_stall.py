"""Ranks of torch.distributed (gloo) that add numbers; in session 0 one stops joining at a step.

``gloo_stall.py HOW``: the rank ``sleep``s, ``spin``s, or reads from a pipe (``read``) instead.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import tony

AT, LAST = 5, 9


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


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    saved = tony.checkpoints(f"{tony.task().checkpoint_dir}/{tony.task().index}")
    newest = saved.latest()
    for step in range(newest[0] + 1 if newest else 0, LAST + 1):
        load_batch(step)
        value = torch.ones(10)
        dist.all_reduce(value)
        assert value[0].item() == dist.get_world_size()
        print("did", step, flush=True)
        tony.report(step=step)
        saved.save(step, b"weights")
        time.sleep(0.1)
    dist.destroy_process_group()


main()
