"""Data-parallel training with PyTorch: DistributedDataParallel over gloo."""

import course
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    args = course.options(__doc__, steps=400)
    dist.init_process_group("gloo")  # reads MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE
    rank, ranks = dist.get_rank(), dist.get_world_size()
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
    parallel = DistributedDataParallel(model)
    for step in range(start, args.steps):
        mine = course.batch_at(step, x, y, args.batch, rank, ranks)
        inputs, target = (torch.from_numpy(part) for part in mine)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs), target)
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        run.report(step, mean.item() / ranks)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        run.save(step + 1, lambda path, state=state: torch.save(state, path))
    run.finish(ranks)
    dist.monitored_barrier()  # no rank hangs up while another is still in its last all-reduce
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
