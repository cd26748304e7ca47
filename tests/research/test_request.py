from pathlib import Path

import pytest

from rankformer.errors import ConfigError
from rankformer.models.registry import MODELS, model_class
from rankformer.research import request as module
from rankformer.research.request import check_methods, configurations

CONFIGS = Path(module.__file__).parent / "configs"


def test_a_trial_bounds_epochs_and_validates_at_least_once(request_for, data):
    request = request_for(epochs=1)
    settings = request.settings(data, "mf")
    assert (settings["epochs"], settings["validate_every"]) == (1, 1)
    assert request_for(epochs=100).settings(data, "mf") == request_for().settings(data, "mf")
    assert "epochs" not in request_for(epochs=1).settings(data, "popularity")


def test_a_row_has_a_training_per_seed_and_one_where_nothing_is_random(request_for, data):
    computations = request_for(seeds=(0, 1, 2)).row(data, "mf", "w/o all")
    assert [each.seed for each in computations] == [0, 1, 2]
    assert computations[1].label == "mf w/o all on tiny, seed 1"
    assert len(request_for(seeds=(0, 1, 2)).row(data, "popularity")) == 1
    with pytest.raises(ConfigError, match="unknown model"):
        request_for().row(data, "not yet written")


def test_changes_are_checked(request_for, data):
    assert request_for().settings(data, "rankformer", tau=1.0)["tau"] == 1.0
    with pytest.raises(ConfigError, match="tau"):
        request_for().settings(data, "rankformer", tau=2.0)


def test_the_grid_over_tau_reaches_from_0_to_1(request_for):
    assert request_for(step=0.2).taus() == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert len(request_for().taus()) == 11
    for step in (0.3, 0.0, -0.1, 2.0):
        with pytest.raises(ConfigError, match="divides 1"):
            request_for(step=step).taus()


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.toml")), ids=lambda path: "/".join(path.parts[-3:]))
def test_every_configuration_in_the_package_is_one_of_its_method(path):
    kind, dataset, name = path.parts[-3:]
    row = configurations(kind)(dataset, name.removesuffix(".toml"))
    assert row.origin == f"{kind}:{dataset}/{name.removesuffix('.toml')}"
    assert model_class(name.removesuffix(".toml"))(**row.settings).settings.hyperparameters() == row.settings


def test_the_papers_settings_of_rankformer_are_in_the_package():
    found = {name: configurations("paper")(name, "rankformer").settings for name in ("ali-display", "epinions")}
    assert [(each["num_layers"], each["tau"], each["epochs"]) for each in found.values()] == [
        (4, 0.5, 2000),
        (4, 0.4, 2000),
    ]


def test_a_row_without_a_file_takes_the_defaults():
    row = configurations("paper")("epinions", "mf")
    assert row == (MODELS["mf"].settings_class().hyperparameters(), "default settings")


def test_a_folder_of_ones_own_is_read_and_a_missing_one_refused(tmp_path):
    (tmp_path / "tiny").mkdir()
    path = tmp_path / "tiny" / "mf.toml"
    path.write_text('model = "mf"\n[settings]\nembedding_dim = 5\n')
    row = configurations(str(tmp_path))("tiny", "mf")
    assert (row.settings["embedding_dim"], row.origin) == (5, path.as_posix())
    plug_in = "rankformer.models.matrix_factorization:MatrixFactorization"
    assert configurations(str(tmp_path))("tiny", plug_in) == row
    with pytest.raises(ConfigError, match="there is no such folder; expected best, paper or a folder"):
        configurations(str(tmp_path / "nowhere"))


def test_methods_are_checked():
    assert check_methods(["mf", "mf", "ease"]) == ("mf", "ease")
    with pytest.raises(ConfigError, match="unknown model 'magic'"):
        check_methods(["magic"])
    with pytest.raises(ConfigError, match="cannot be loaded"):
        check_methods(["no_such_package:Model"])
