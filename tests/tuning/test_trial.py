import json
from types import SimpleNamespace

import pytest

from rankformer.errors import RunFolderError
from rankformer.tuning.objective import Trial
from rankformer.tuning.study import Study

COMPLETE = Trial(2, "complete", {"l2": 1e-4, "initialization": "normal"}, 0.1 + 0.2, 40, {20: 0.1, 40: 0.1 + 0.2}, 1.5)


def test_to_disk_and_back():
    for trial in (COMPLETE, Trial(0, "failed", {"l2": 0.0}, problem="the loss is not finite")):
        assert Trial.from_json(json.loads(json.dumps(trial.to_json()))) == trial


@pytest.mark.parametrize(
    "change",
    [{"state": "running"}, {"value": None}, {"state": "failed"}, {"extra": 1}, {"validations": [[1]]}],
    ids=str,
)
def test_what_is_not_a_trial_is_refused(change):
    with pytest.raises(RunFolderError, match="in it"):
        Trial.from_json({**COMPLETE.to_json(), **change})


def best_of(trials):
    return Study(SimpleNamespace(), {}, trials).best


def test_the_best_is_complete_and_the_earliest_of_equals():
    trials = [
        Trial(0, "complete", {}, 0.1),
        Trial(1, "pruned", {}, 0.9),
        Trial(2, "complete", {}, 0.3),
        Trial(3, "complete", {}, 0.3),
        Trial(4, "failed", {}),
    ]
    assert best_of(trials) is trials[2]
    assert best_of(trials[:1]) is trials[0]
    assert best_of([trials[1], trials[4]]) is None


def test_a_value_below_zero_can_be_the_best():
    trials = [Trial(0, "complete", {}, -2.0), Trial(1, "complete", {}, -1.0)]
    assert best_of(trials) is trials[1]
