"""Train on a Ray cluster, one rank per worker: python deploy/launch/ray_train.py P DATA --out RUN ...

Ray Train starts P workers and sets what torchrun would; each runs `python -m rankformer train` with the rest, in the
folder of this command. DATA and RUN are on a file system that all see.
"""

import os
import subprocess
import sys

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def rank(config: dict[str, list[str]]) -> None:
    """Run one rank to its end, in a process of its own, which meets the others in the store of Ray's workers."""
    variables = {**os.environ, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    command = [sys.executable, "-m", "rankformer", "train", *config["arguments"]]
    subprocess.run(command, env=variables, cwd=config["folder"][0], check=True)


def main() -> None:
    """Start the ranks and wait for them."""
    ranks, *arguments = sys.argv[1:]
    TorchTrainer(
        rank,
        train_loop_config={"arguments": arguments, "folder": [os.getcwd()]},
        scaling_config=ScalingConfig(num_workers=int(ranks), use_gpu=False),
        run_config=RunConfig(name="rankformer"),
    ).fit()


if __name__ == "__main__":
    main()
