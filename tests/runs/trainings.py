"""Small parts to train on, and trainings that end early."""

import pytest
from tests.logs import random_log

from rankformer.data.parts import Parts

PARTS = Parts(random_log(size=60), random_log(size=12, seed=1), random_log(size=12, seed=2))


class Stop(Exception):
    """Ends a training from outside."""


def stopped_at(epoch, fit, *arguments, **options):
    """Call `fit`, and end it at the event of an epoch."""

    def follow(event):
        if event["event"] == "epoch" and event["epoch"] == epoch:
            raise Stop

    with pytest.raises(Stop):
        fit(*arguments, on_event=follow, **options)
