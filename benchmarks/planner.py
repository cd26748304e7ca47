"""The memory that `rankformer plan` predicts."""

import numpy as np

from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.models.trained import TrainedModel
from rankformer.planning.plan import make_plan


def predicted_mb(model: TrainedModel, train: Interactions) -> float:
    """Return the peak memory that the package predicts for training without validation.

    To be called where the training is about to start: the process as it is then is part of the prediction.
    """
    nothing = train.rows(np.arange(0))
    return float(make_plan(model, Parts(train, nothing, nothing))["memory"]["peak"]) / 2**20
