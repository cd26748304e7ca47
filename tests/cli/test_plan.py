import pytest

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
    assert "continued" not in outcome.out
    assert outcome.err == ""


def test_without_a_limit_the_machine_is_the_limit(planned):
    assert "(90% of this machine)" in planned().out


def test_json_has_every_number_and_nothing_else(planned):
    document = planned("--json", "--memory", "2TB").json
    assert (document["data"], document["model"], document["fits"]) == ("clicks", "rankformer", True)
    assert (document["users"], document["items"]) == (12, 10)
    assert document["limit"] == 2 * 10**12
    assert document["memory"]["basis"] == "counted"
    assert sum(document["memory"]["parts"].values()) <= document["memory"]["peak"]
    assert set(document["seconds"]) == {"epoch", "validation", "timed_pairs"}
    assert document["seconds_in_all"] > 0
    assert document["changes"] == []


def test_what_is_too_large_is_told_what_to_change(planned, monkeypatch):
    """With the process itself left out, so that settings matter at the size of a test."""
    monkeypatch.setattr("rankformer.planning.plan.memory_now", lambda: 0)
    monkeypatch.setattr("rankformer.planning.plan.peak_memory", lambda: 0)
    large = ["--set", "embedding_dim=128", "--set", "num_layers=6"]
    peak = planned("--json", settings=large).json["memory"]["peak"]
    document = planned("--json", "--memory", f"{int(peak * 0.95)}", settings=large).json
    assert document["fits"] is False
    assert document["changes"][0]["settings"] == {"activations": "recompute"}
    shown = planned("--memory", f"{int(peak * 0.95)}", settings=large)
    assert shown.code == 0
    assert "it does not fit: it needs" in shown.out
    assert "it would fit with\n  --set activations=recompute" in shown.out


def test_what_no_setting_can_make_fit_is_said_to_be_so(planned):
    outcome = planned("--memory", "1MB")
    assert outcome.code == 0
    assert "no change of settings is enough; use fewer pairs" in outcome.out


def test_a_model_without_a_count_is_measured_and_says_so(planned):
    settings = ["--set", "embedding_dim=8", "--set", "epochs=2"]
    outcome = planned("--model", "mf", "--memory", "1MB", settings=settings)
    assert outcome.code == 0
    assert "no count is written for mf" in outcome.out
    assert "try a smaller --set embedding_dim=..." in outcome.out


def test_a_config_file_is_taken_as_train_takes_it(planned, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('model = "rankformer"\n[settings]\nepochs = 40\n', encoding="utf-8")
    document = planned("--config", config, "--json", settings=["--set", "embedding_dim=8"]).json
    assert document["epochs"] == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "rankfromer"], "did you mean 'rankformer'?"),
        (["--model", "popularity"], "popularity is not trained in epochs"),
        (["--model", "dualvae"], "dualvae has steps of its own kind"),
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
