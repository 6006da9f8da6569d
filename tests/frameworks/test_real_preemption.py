"""A warning reaches a program of PyTorch that trains, and none of its data loader's children."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, List

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Ended, Preemption

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]

TRAINS = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
import tony

def line(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

class Points(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, at):
        assert tony.preemption() is None or os.getpid() != main
        time.sleep(0.001)
        return torch.ones(8) * at

main = os.getpid()
signal.signal(signal.SIGUSR1, lambda number, frame: line("signal", os.getpid() == main))
tony.on_preemption(lambda left: line("warned", os.getpid() == main))
rendezvous = f"file://{sys.argv[1]}/rendezvous"
dist.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
saved = tony.checkpoints(sys.argv[1] + "/saved")
loader = DataLoader(Points(), batch_size=4, num_workers=2, multiprocessing_context="fork")
left = None
for step, batch in enumerate(loader, 1):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    if step == 3:
        line("trains")
    if tony.preemption() is not None and left is None:
        saved.save(step, lambda path: torch.save(model.module.state_dict(), path))
        left = 20
    if left is not None:
        left -= 1
        if not left:
            line("went on after", saved.latest()[0] == step - 19)
            os._exit(0)
"""


def output(executor: Executor) -> List[str]:
    return executor.log("stdout").splitlines()


@pytest.fixture
def master() -> Master:
    return Master()


def test_a_loaders_children_are_left_out(
    master: Master, environment: Callable[[str], Path], tmp_path: Path
) -> None:
    python = environment("torch") / "bin" / "python"
    (tmp_path / "train.py").write_text(TRAINS)
    executor = Executor(tmp_path, master.address)
    try:
        master.prepare()
        master.start(f"{python} {tmp_path / 'train.py'} {tmp_path}")
        master.until(lambda: "trains" in output(executor) or master.received(Ended), 120)
        assert not master.received(Ended), executor.log("stderr")
        master.send(Preemption(0, seconds=30.0, signal="SIGUSR1"))
        ended = master.expect(Ended, 120)
        words = (output(executor), executor.log("stderr"))
        assert (ended.exit_code, ended.preempted) == (0, True), words
        assert sorted(output(executor)) == [
            "signal True", "trains", "warned True", "went on after True",
        ], words  # fmt: skip
        master.shut_down(executor)
    finally:
        executor.close()
        master.close()
