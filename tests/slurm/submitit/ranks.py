"""A job of four tasks, as research code submits it: ranks.py FOLDER SRUN_OPTION."""

import sys

import submitit


def ranks():
    """Runs in each task."""
    import os

    from submitit.helpers import TorchDistributedEnvironment

    TorchDistributedEnvironment().export()
    env = os.environ
    return f"rank {env['RANK']} of {env['WORLD_SIZE']} sees device {env['CUDA_VISIBLE_DEVICES']}"


folder, option = sys.argv[1:]
executor = submitit.AutoExecutor(folder=folder, cluster="slurm")
executor.update_parameters(
    nodes=1,
    tasks_per_node=4,
    # Slurm sends submitit's signal 90 s before the limit and up to 60 s earlier
    # (sbatch(1), --signal): a short limit would have it end tasks as they start.
    timeout_min=10,
    slurm_gpus_per_node=4,
    slurm_additional_parameters={"overcommit": True},
    slurm_srun_args=["--overcommit", option],
)
for line in executor.submit(ranks).results():
    print(line)
