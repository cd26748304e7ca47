import pytest

from rankformer.planning.probe import Cost

from .conftest import CLICK_COLUMNS, TINY


@pytest.fixture
def planned(cli, clicks):
    def call(*arguments, settings=TINY):
        return cli("plan", clicks, "--threads", 1, *CLICK_COLUMNS, *settings, *arguments)

    return call


def test_a_plan_tells_memory_time_and_whether_it_fits(planned):
    outcome = planned("--memory", "100GB")
    assert outcome.code == 0
    assert outcome.out.startswith("rankformer on clicks: 12 users x 10 items, ")
    for words in (
        "process and data",
        "in all",
        "an epoch takes about",
        "6 epochs and 3 validations",
        "100.00 GB given",
    ):
        assert words in outcome.out
    assert "it fits: " in outcome.out
    assert "extrapolated" not in outcome.out
    assert outcome.err == ""


def test_without_a_limit_the_machine_is_the_limit(planned):
    assert "(90% of this machine)" in planned().out


def test_json_has_every_number_and_nothing_else(planned):
    document = planned("--json", "--memory", "2TB").json
    assert (document["data"], document["model"], document["fits"]) == ("clicks", "rankformer", True)
    assert (document["users"], document["items"]) == (12, 10)
    assert document["limit"] == 2 * 10**12
    assert document["samples"] == [document["interactions"]]
    assert document["memory"]["basis"] == "measured"
    assert sum(document["memory"]["parts"].values()) <= document["memory"]["peak"]
    assert set(document["seconds"]) == {"setup", "epoch", "validation"}
    assert document["seconds_in_all"] > 0
    assert document["changes"] == []


def test_what_is_too_large_is_told_what_to_change(planned, monkeypatch):
    """With invented measurements, so that settings matter at the size of a test."""

    def cost(model, train, valid, changes):
        growth = 10**12 // (2 if changes.get("activations") == "recompute" else 1)
        return Cost(len(train), growth, 0.1, 0.1, 0.1)

    monkeypatch.setattr("rankformer.planning.plan.probe", cost)
    document = planned("--json", "--memory", "600GB").json
    assert document["fits"] is False
    assert document["changes"][0]["settings"] == {"activations": "recompute"}
    shown = planned("--memory", "600GB")
    assert shown.code == 0
    assert "it does not fit: it needs 100" in shown.out
    assert "it would fit with --set activations=recompute   50" in shown.out


def test_what_no_setting_can_make_fit_is_said_to_be_so(planned):
    outcome = planned("--memory", "1MB")
    assert outcome.code == 0
    assert "no change of settings is enough; use fewer interactions" in outcome.out


def test_a_log_too_large_to_measure_is_extrapolated_and_says_so(planned, monkeypatch):
    monkeypatch.setattr("rankformer.planning.plan.FIRST_SIZE", 20)
    monkeypatch.setattr("rankformer.planning.plan.probe", lambda model, train, *_: Cost(len(train), 100, 1.0, 1.0, 1.0))
    assert "extrapolated from samples of " in planned().out


@pytest.mark.parametrize("model", ["mf", "dualvae", "mgformer"])
def test_every_trained_model_has_a_plan(planned, model):
    outcome = planned("--model", model, settings=["--set", "embedding_dim=8", "--set", "epochs=2"])
    assert outcome.code == 0
    assert "an epoch takes about" in outcome.out


def test_a_model_of_ones_own_has_a_plan(planned, tmp_path, monkeypatch):
    text = "from rankformer.models.matrix_factorization import MatrixFactorization\n\n\n"
    text += 'class OwnToo(MatrixFactorization):\n    name = "own-too"\n'
    (tmp_path / "own_model_too.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    document = planned("--model", "own_model_too:OwnToo", "--json", settings=["--set", "epochs=2"]).json
    assert (document["model"], document["epochs"]) == ("own-too", 2)


def test_a_method_that_is_solved_says_so(planned):
    outcome = planned("--model", "ease", settings=())
    assert outcome.code == 0
    assert "ease is solved, not trained in epochs: the solution takes about" in outcome.out
    assert "an epoch" not in outcome.out


def test_a_config_file_is_taken_as_train_takes_it(planned, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('model = "rankformer"\n[settings]\nepochs = 40\n', encoding="utf-8")
    document = planned("--config", config, "--json", settings=["--set", "embedding_dim=8"]).json
    assert document["epochs"] == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "rankfromer"], "did you mean 'rankformer'?"),
        (["--memory", "plenty"], "expected a size such as 16GB"),
        (["--set", "activations=float16"], "activations"),
        (["--set", "width=3"], "width"),
        (["--user-column", "nobody"], "nobody"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(planned, arguments, message):
    outcome = planned(*arguments, settings=())
    assert outcome.code == 2
    assert message in outcome.error


def test_data_that_is_not_there_is_one_line(cli, tmp_path):
    outcome = cli("plan", tmp_path / "none.csv")
    assert outcome.code == 2
    assert "none.csv" in outcome.error


def test_ranks_are_planned(planned):
    found = planned("--ranks", 2, "--bandwidth", "1Gbit", "--json").json["ranks"]
    m, d, layers = (found["size"][name] for name in ("items", "dim", "layers"))
    assert (m, d, layers) == (10, 8, 1)
    assert found["bytes_per_step"] == 4 * (5 * m * d + d * d + 2 * d + m + 1)
    assert found["seconds"]["network"] == found["bytes_per_step"] * 8 / 1e9
    shown = planned("--ranks", 2).out
    assert "memory of each of 2 ranks" in shown
    assert "at 10Gbit" in shown


def test_ranks_of_a_model_whose_sums_are_not_known(planned):
    assert "the sums of popularity are not known" in planned("--ranks", 2, settings=["--model", "popularity"]).error
