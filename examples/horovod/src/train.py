"""Data-parallel training with PyTorch and Horovod: its optimizer adds up the gradients."""

import course
import horovod.torch as hvd
import torch
from torch import nn


def main():
    args = course.options(__doc__, steps=400)
    hvd.init()  # reads HOROVOD_*
    rank, ranks = hvd.rank(), hvd.size()
    torch.set_num_threads(1)
    run = course.Course(args, chief=rank == 0)
    x, y = course.load(args.data)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def restore(path):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    start = run.resume(restore)
    parallel = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for step in range(start, args.steps):
        mine = course.batch_at(step, x, y, args.batch, rank, ranks)
        inputs, target = (torch.from_numpy(part) for part in mine)
        parallel.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), target)
        loss.backward()
        parallel.step()
        run.report(step, hvd.allreduce(loss.detach(), name="loss").item())
        state = {"model": model.state_dict(), "optimizer": parallel.state_dict()}
        run.save(step + 1, lambda path, state=state: torch.save(state, path))
    run.finish(ranks)
    hvd.shutdown()


if __name__ == "__main__":
    main()
