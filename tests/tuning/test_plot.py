import builtins

import pytest

from rankformer.models.registry import model_class
from rankformer.tuning.objective import Trial
from rankformer.tuning.plot import draw
from rankformer.tuning.report import PICTURE
from rankformer.tuning.space import make_space
from rankformer.tuning.study import Study


def test_every_kind_of_setting_and_trial(objective):
    method = model_class("difformer")
    described = {
        "learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
        "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},  # its default 0 has no position on a log scale
        "num_layers": {"low": 1, "high": 4},
        "initialization": ["normal", "spectral"],
        "norm": ["row", "frobenius"],
    }
    space = make_space(method, described, "a test")
    rows = [(1e-3, 0.0, 2, "normal", "frobenius"), (1e-2, 1e-3, 4, "spectral", "row")] * 3
    states = [("complete", 0.1), ("failed", None), ("pruned", 0.05), ("complete", 0.3), ("complete", 0.2)]
    trials = [
        Trial(number, state, dict(zip(space, row, strict=True)), value)
        for number, ((state, value), row) in enumerate(zip(states, rows, strict=False))
    ]
    study = Study(type(objective)(method, objective.data, {}, 0, objective.folder), space, trials)
    draw(study)
    assert [path.name for path in objective.folder.iterdir()] == [PICTURE]
    assert (objective.folder / PICTURE).read_bytes().startswith(b"\x89PNG")


def test_choices_without_the_default(objective):
    method = model_class("lightgcn")
    space = make_space(method, {"num_layers": [1, 2]}, "a test")
    trials = [Trial(0, "complete", {"num_layers": 3}, 0.1), Trial(1, "complete", {"num_layers": 1}, 0.2)]
    draw(Study(type(objective)(method, objective.data, {}, 0, objective.folder), space, trials))
    assert (objective.folder / PICTURE).exists()


@pytest.mark.parametrize("there", [True, False])
def test_whether_it_can_be_drawn(objective, monkeypatch, there):
    real = builtins.__import__

    def some(name, *rest):
        if name.startswith("matplotlib") and not there:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", some)
    assert draw(Study(objective, {}, [Trial(0, "complete", {}, 0.1)])) is there
    assert (objective.folder / PICTURE).exists() is there
