"""A small PyTorch DDP training, the same under srun and under torchrun.

    srun -N2 --ntasks-per-node=4 --gpus-per-node=4 --gpu-bind=spank python3 train_ddp.py

It has no line about Slurm or gpubind: it reads what torchrun gives its workers,
which gpubind gives to the tasks of srun as well. Where there is no GPU it runs on CPUs.
"""

import os
import platform

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 60


def main():
    use_cuda = torch.cuda.is_available()
    device = torch.device("cpu")
    if use_cuda:
        # Every rank sees one GPU and LOCAL_RANK is 0, so this line is not needed
        # with gpubind. It stays right all the same.
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl" if use_cuda else "gloo", init_method="env://")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    where = os.environ.get("SLURMD_NODENAME", platform.node())
    seen = [f"{name}={os.environ.get(name)}" for name in ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES")]
    # In one piece: the ranks' lines may share a pipe.
    print(f"rank {rank} of {ranks} on {where}: {' '.join(seen)}\n", end="", flush=True)

    # All ranks start from the same weights; each has data of its own.
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    ).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if use_cuda else None)
    data = torch.Generator().manual_seed(rank)
    inputs = torch.randn(64, 4, generator=data).to(device)
    targets = inputs.sum(dim=1, keepdim=True).sin()

    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.mse_loss(ddp(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean_over_ranks(loss.detach(), ranks))

    first, last = losses[0], losses[-1]
    if not last < 0.5 * first:
        raise SystemExit(f"rank {rank}: the loss did not fall: {first:.6f}, then {last:.6f}")
    if rank == 0:
        print(f"{ranks} ranks, {STEPS} steps: loss {first:.6f} -> {last:.6f}", flush=True)
    dist.destroy_process_group()


def mean_over_ranks(value, ranks):
    dist.all_reduce(value)
    return value.item() / ranks


if __name__ == "__main__":
    main()
