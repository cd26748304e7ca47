"""Train on a Ray cluster, one rank per worker: python deploy/launch/ray_train.py P DATA --out RUN ...

Ray Train starts P workers and sets what torchrun would; each runs `python -m rankformer train` with the rest.
"""

import subprocess
import sys

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def rank(config: dict[str, list[str]]) -> None:
    """Run one rank to its end, in a process of its own: Ray has joined the worker's to a group already."""
    import os

    import torch.distributed as dist

    variables = dict(os.environ)
    dist.barrier()  # all addresses are known
    dist.destroy_process_group()  # its port is free for the ranks
    subprocess.run([sys.executable, "-m", "rankformer", "train", *config["arguments"]], env=variables, check=True)


def main() -> None:
    """Start the ranks and wait for them."""
    ranks, *arguments = sys.argv[1:]
    TorchTrainer(
        rank,
        train_loop_config={"arguments": arguments},
        scaling_config=ScalingConfig(num_workers=int(ranks), use_gpu=False),
        run_config=RunConfig(name="rankformer"),
    ).fit()


if __name__ == "__main__":
    main()
