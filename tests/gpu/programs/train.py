"""A small network trained with PyTorch on the GPU that the task has, or without one.

``BACKEND`` is nccl (DistributedDataParallel, every rank has a GPU) or gloo (gradients are added up
on the processors, so that ranks with and without a GPU train together).
"""

import os

import course
import seen
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    args = course.options(__doc__, steps=100)
    backend = os.environ.get("BACKEND", "gloo")
    seen.by_torch()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group(backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    run = course.Course(args, chief=rank == 0)
    x, y = course.load(args.data)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def restore(path):
        state = torch.load(path, weights_only=True, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    start = run.resume(restore)
    parallel = DistributedDataParallel(model) if backend == "nccl" else model
    for step in range(start, args.steps):
        mine = course.batch_at(step, x, y, args.batch, rank, ranks)
        inputs, target = (torch.from_numpy(part).to(device) for part in mine)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs), target)
        loss.backward()
        if backend != "nccl":
            for weights in model.parameters():
                total = weights.grad.cpu()
                dist.all_reduce(total)
                weights.grad.copy_(total / ranks)
        optimizer.step()
        run.tell(step, loss.item())
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        run.save(step + 1, lambda path, state=state: torch.save(state, path))
    run.finish(ranks)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
