"""Uses a GPU well or badly: ``feeds.py HOW SECONDS``; see tests/gpu/advice_cases.py."""

from __future__ import annotations

import sys
import time

import torch

import tony

how, seconds = sys.argv[1], float(sys.argv[2])


def step_on(step: int) -> None:
    """Prepare a batch on one core, and compute with it."""
    if how in ("idle", "starved"):
        busy = time.monotonic() + (0.2 if how == "idle" else 0.15)
        while time.monotonic() < busy:
            sum(range(1000))
    if tiny is not None:
        for _ in range(5000):  # one thread starts them, and waits for each
            tiny.add_(1)
            torch.cuda.synchronize()
    elif wide is not None:
        for _ in range(30 if how == "starved" else 100):
            wide @ wide
        torch.cuda.synchronize()
    tony.report(step=step, metrics={"held": 0.0 if held is None else float(held[0])})


def spin() -> None:
    """A kernel that never ends."""
    while True:
        torch.cuda._sleep(10**12)  # some minutes each
        torch.cuda.synchronize()


end, step = time.monotonic() + seconds, 0
card = torch.cuda.get_device_properties(0).total_memory
taken = {"right": 0.6, "starved": 0.35, "launches": 0.35}.get(how, 0.02)
held = torch.zeros(int(card * taken) // 4, device="cuda") if how != "idle" else None
wide = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) if how != "idle" else None
tiny = torch.zeros(64, device="cuda") if how == "launches" else None
while time.monotonic() < end or how == "hangs":
    step += 1
    step_on(step)
    if how == "hangs" and step == 20:
        spin()
