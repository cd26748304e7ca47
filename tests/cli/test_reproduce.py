import json
import re

import pytest

from rankformer.cli.main import run

from .conftest import write_clicks
from .test_progress import slowly

CONFIG = 'model = "{model}"\n[settings]\nepochs = 4\nvalidate_every = 2\nembedding_dim = 4\n'


@pytest.fixture
def data(tmp_path):
    return write_clicks(tmp_path / "clicks.csv", "user,item,title")


@pytest.fixture
def reproduce(cli, data, tmp_path):
    """Calls the command on small data, with short trainings and folders of this test."""
    for model in ("mf", "rankformer"):
        path = tmp_path / "configs" / "clicks" / f"{model}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CONFIG.format(model=model), encoding="utf-8")

    def call(experiment, *arguments, dataset=data):
        given = ["--dataset", dataset] if dataset is not None else []
        folders = ["--out", tmp_path / "out"]
        if experiment != "lemma" and "--configs" not in arguments:
            folders += ["--configs", tmp_path / "configs"]
        return cli("reproduce", experiment, *given, *folders, "--threads", 1, *arguments)

    return call


def documents(tmp_path):
    return {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}


def test_a_table_is_computed_once_and_says_where_its_settings_come_from(reproduce, tmp_path):
    rows = ("table-comparison", "--methods", "mf,popularity", "--seeds", 2)
    first = reproduce(*rows)
    assert first.code == 0, first.err
    assert [line.split(":")[0] for line in first.err.splitlines() if "/3:" in line] == ["1/3", "2/3", "3/3"]
    assert "clicks: NDCG@20 and recall_capped@20" in first.out
    document = documents(tmp_path)["table-comparison-clicks"]
    found = document["data"]["clicks"]["rows"]
    assert found["mf"]["settings_from"].endswith("configs/clicks/mf.toml")
    assert found["mf"]["settings"]["embedding_dim"] == 4
    assert found["popularity"]["settings_from"] == "default settings"
    assert (found["mf"]["seeds"], document["seeds"], document["trial"]) == ([0, 1], [0, 1], "")
    assert document["command"].startswith("rankformer reproduce table-comparison --dataset ")
    again = reproduce(*rows)
    assert again.err == ""
    assert documents(tmp_path)["table-comparison-clicks"]["data"] == document["data"]
    more = reproduce("table-comparison", "--methods", "mf,popularity", "--seeds", 3)
    assert [line.split(":")[0] for line in more.err.splitlines() if "/4:" in line] == ["4/4"]


def test_a_report_shows_what_is_there_without_computing(reproduce, tmp_path):
    reproduce("table-runtime", "--methods", "mf", "--seeds", 1)
    shown = reproduce("table-comparison", "--methods", "mf,lightgcn", "--seeds", 3, "--report-only")
    assert (shown.code, shown.err) == (0, "")
    rows = documents(tmp_path)["table-comparison-clicks"]["data"]["clicks"]["rows"]
    assert {method: row["seeds"] for method, row in rows.items()} == {"mf": [0]}
    assert "not run" not in shown.out


def test_a_damaged_result_is_computed_again_with_a_warning(reproduce, tmp_path):
    reproduce("table-comparison", "--methods", "popularity", "--seeds", 1)
    [stored] = (tmp_path / "out" / "stored").glob("*.json")
    stored.write_bytes(stored.read_bytes()[:-20])
    again = reproduce("table-comparison", "--methods", "popularity", "--seeds", 1)
    assert again.code == 0
    assert again.err.startswith("warning: ")
    assert stored.name in again.err
    assert "1/1: popularity on clicks, seed 0" in again.err


def test_epochs_make_a_trial_and_the_report_says_so(reproduce, tmp_path):
    outcome = reproduce("figure-alpha", "--alphas", "0,2,4", "--epochs", 1)
    assert outcome.code == 0, outcome.err
    assert "A trial, not a result: trainings were cut off after 1 epochs." in outcome.out
    for ending in ("md", "html"):
        assert "A trial, not a result" in (tmp_path / "out" / f"figure-alpha-clicks.{ending}").read_text()
    assert (tmp_path / "out" / "figure-alpha-clicks.png").read_bytes().startswith(b"\x89PNG")


def test_json_is_one_document_and_nothing_else(reproduce):
    document = reproduce("lemma", "--seeds", 1, "--json", dataset=None).json
    assert document["experiment"] == "lemma"
    assert [path.rsplit(".", 1)[1] for path in document["files"]] == ["json", "md", "html", "png", "svg"]
    assert document["datasets"] == []


def test_datasets_whose_files_are_absent_are_reported_as_not_run(reproduce, tmp_path, monkeypatch):
    folder = tmp_path / "datasets" / "ali-display"
    folder.mkdir(parents=True)
    for part, shift in (("train", 0), ("valid", 1), ("test", 2)):
        (folder / f"{part}.txt").write_text("".join(f"{user} {(user + shift) % 7}\n" for user in range(9)))
    monkeypatch.setenv("RANKFORMER_DATA", str(tmp_path / "datasets"))
    outcome = reproduce("figure-random", "--layers", 1, "--seeds", 1, "--step", 0.5, dataset=None)
    assert outcome.code == 0, outcome.err
    document = documents(tmp_path)["figure-random"]
    assert [name for name, _ in document["absent"]] == ["epinions", "amazon-cds", "yelp2018"]
    assert "note: yelp2018 was not run: its files are not here; run `rankformer data download yelp2018`" in outcome.err
    assert str(tmp_path) not in (tmp_path / "out" / "figure-random.md").read_text()
    assert "not run: amazon-cds" in (tmp_path / "out" / "figure-random.html").read_text()


def test_a_name_full_of_signs_becomes_a_plain_file_name(reproduce, data, tmp_path):
    odd = data.rename(tmp_path / "<b>$x$ & y.csv")
    outcome = reproduce("figure-random", "--layers", 1, "--seeds", 1, "--step", 0.5, dataset=odd)
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "out" / "figure-random-b-x-y.html").read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;$x$ &amp; y" in page


def test_ctrl_c_says_how_to_continue(reproduce, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rankformer.research.runner.compute", interrupted)
    outcome = reproduce("table-comparison", "--methods", "mf", "--seeds", 1)
    assert outcome.code == 130
    assert "run the same command again to continue" in outcome.err


@pytest.mark.parametrize(
    ("experiment", "arguments", "message"),
    [
        ("table-comparisons", [], "'table-comparisons' is not a known experiment; expected one of table-comparison,"),
        (
            "table-ablation",
            ["--step", "0.2"],
            "--step means nothing to table-ablation; it belongs to figure-random, figure-tau",
        ),
        ("lemma", [], "--dataset means nothing to lemma"),
        ("figure-tau", ["--step", "0.3"], "a step that divides 1"),
        ("figure-tau", ["--step", "0"], "a step that divides 1"),
        ("figure-alpha", ["--alphas", "0,x"], "expected numbers from 0 up"),
        ("figure-alpha", ["--alphas", "-1,2"], "expected numbers from 0 up"),
        ("table-comparison", ["--methods", "mf,magic"], "unknown model 'magic'"),
        ("table-comparison", ["--methods", ","], "--methods is empty"),
        ("table-comparison", ["--methods", "no_such_package:Model"], "cannot be loaded"),
        ("table-comparison", ["--configs", "no/such/folder"], "--configs no/such/folder: there is no such folder"),
        ("table-comparison", ["--device", "cuda:99"], "device='cuda:99'"),
        ("figure-random", ["--device", "magic"], "device='magic'"),
        ("table-comparison", ["--fresh", "--report-only"], "--fresh and --report-only contradict each other"),
        ("table-comparison", ["--dataset", "nowhere"], "'nowhere' is no"),
    ],
)
def test_a_mistake_is_one_line(reproduce, experiment, arguments, message):
    outcome = reproduce(experiment, *arguments)
    assert outcome.code == 2
    assert message in outcome.error


def test_a_config_with_data_of_its_own_is_refused(reproduce, tmp_path):
    path = tmp_path / "configs" / "clicks" / "mf.toml"
    path.write_text(path.read_text() + "[data]\nk_core = 2\n")
    assert "read the data alike" in reproduce("table-comparison", "--methods", "mf").error


def test_a_config_of_another_method_is_refused(reproduce, tmp_path):
    (tmp_path / "configs" / "clicks" / "mf.toml").write_text(CONFIG.format(model="lightgcn"))
    assert "contradicts" in reproduce("table-comparison", "--methods", "mf").error


def test_with_no_data_at_all_there_is_nothing_to_run(cli, tmp_path):
    outcome = cli("reproduce", "figure-random", "--out", tmp_path)
    assert outcome.code == 2
    assert "dataset 'ali-display' was not found" in outcome.error


def test_the_help_names_every_experiment(capsys):
    assert run(["reproduce", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in ("table-comparison", "table-ablation", "table-runtime", "figure-random", "figure-tau", "figure-alpha"):
        assert name in " ".join(shown.split())


def test_fresh_computes_stored_results_again(reproduce):
    rows = ("table-comparison", "--methods", "popularity")
    assert "1/1" in reproduce(*rows).err
    assert "1/1" not in reproduce(*rows).err
    assert "1/1" in reproduce(*rows, "--fresh").err


def test_results_of_another_commit_are_reused_and_said_to_be(reproduce, tmp_path, monkeypatch):
    rows = ("table-comparison", "--methods", "popularity")
    monkeypatch.setattr("rankformer.research.results.code_version", lambda: "0123456789ab")
    reproduce(*rows)
    monkeypatch.undo()
    again = reproduce(*rows)
    assert "stored results of other code are shown (1 of 1 with 0123456789ab)" in again.err
    assert "1 of 1 with 0123456789ab" in (tmp_path / "out" / "table-comparison-clicks.md").read_text()


def test_only_the_rows_asked_for_are_shown_with_a_command_for_each(reproduce, tmp_path, data):
    own = "rankformer.models.ease:EASE"
    outcome = reproduce("table-comparison", "--methods", f"popularity,{own}", "--configs", "paper")
    assert outcome.code == 0, outcome.err
    document = documents(tmp_path)["table-comparison-clicks"]
    assert list(document["data"]["clicks"]["rows"]) == ["popularity", own]
    command = f"rankformer reproduce table-comparison --dataset {data} --methods {own} --seeds 1 --configs paper"
    assert document["commands"][1] == ["EASE, clicks", command]
    assert "not run" not in outcome.out


@pytest.mark.parametrize(
    ("experiment", "arguments"),
    [
        ("table-comparison", ["--methods", "mf,rankformer,rankformer-cl,popularity", "--seeds", 2, "--epochs", 1]),
        ("table-runtime", ["--methods", "mf,rankformer,rankformer-cl,popularity", "--seeds", 2, "--epochs", 1]),
        ("table-ablation", ["--seeds", 2, "--epochs", 1]),
        ("figure-random", ["--layers", 2, "--seeds", 2, "--step", 0.5]),
        ("figure-tau", ["--step", 0.5, "--seeds", 2, "--epochs", 1]),
    ],
)
def test_it_is_readable_at_80_columns(reproduce, monkeypatch, experiment, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = reproduce(experiment, *arguments)
    assert outcome.code == 0, outcome.err
    assert all(len(line.rstrip()) <= 80 for line in outcome.out.splitlines() if not line.startswith("  "))
    numbers = [line for line in outcome.out.splitlines() if "±" in line]
    assert all(re.search(r"\d\.\d{4}±\.\d{4}( |$)", line) for line in numbers), "a number is broken over two lines"
    assert bool(numbers) is (experiment != "table-runtime")


def test_a_long_result_is_told_by_its_name(reproduce, monkeypatch):
    from rankformer.research import runner

    monkeypatch.setattr("rankformer.cli.progress.FIRST_LINE_AFTER", 0.01)
    monkeypatch.setattr(runner, "fit_and_evaluate", slowly(runner.fit_and_evaluate))
    told = reproduce("table-comparison", "--methods", "popularity", "--seeds", 1).err
    assert re.search(r"^popularity on clicks.* \.\.\. \d+ s$", told, re.MULTILINE), told
