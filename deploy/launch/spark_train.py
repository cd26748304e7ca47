"""Train on a Spark cluster, one rank per task: spark-submit deploy/launch/spark_train.py P DATA --out RUN ...

TorchDistributor starts P tasks in a barrier and runs a program under torchrun in each; the program here is this file,
which becomes `python -m rankformer train` with the arguments after P. DATA and RUN are on a file system that all see.
"""

import os
import sys

if "RANK" in os.environ:  # started by torchrun
    os.execv(sys.executable, [sys.executable, "-m", "rankformer", "train", *sys.argv[1:]])

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

if __name__ == "__main__":
    ranks, *arguments = sys.argv[1:]
    session = SparkSession.builder.appName("rankformer").getOrCreate()
    is_local = session.sparkContext.master.startswith("local")
    TorchDistributor(num_processes=int(ranks), local_mode=is_local, use_gpu=False).run(__file__, *arguments)
    session.stop()
