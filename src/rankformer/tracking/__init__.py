"""A training followed by other programs: `tracked` feeds trackers and functions of one's own with its events."""

TRACKERS = {
    "tensorboard": "rankformer.tracking.trackers:TensorBoard",
    "mlflow": "rankformer.tracking.trackers:MLflow",
    "wandb": "rankformer.tracking.trackers:WeightsAndBiases",
}
