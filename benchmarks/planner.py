"""The planner's memory prediction, if this version of the package has one."""

from rankformer.data.interactions import Interactions
from rankformer.models.trained import TrainedModel


def predicted_mb(model: TrainedModel, train: Interactions) -> float | None:
    """Return the peak memory that the package predicts for training without validation, or None without a planner.

    To be called where the training is about to start: the process as it is then is part of the prediction.
    """
    try:
        from rankformer.planning.memory import Shape

        from rankformer.planning.machine import memory_now
        from rankformer.planning.plan import forecast
        from rankformer.planning.probe import warm_up
    except ImportError:
        return None
    warm_up(model, False)
    shape = Shape(train.num_users, train.num_items, len(train), validates=False)
    return forecast(model, shape, memory_now()).peak / 2**20
