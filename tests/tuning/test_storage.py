"""A search in a database: continued from another folder, refused where it is another's, silent about passwords."""

import json
import shutil
import sqlite3

import optuna
import pytest
from tests.cli.conftest import CLICK_COLUMNS, cli, clicks  # noqa: F401
from tests.conftest import needed

TESTED = {"Optuna": ("tool", "optuna")}

SEARCH = [*CLICK_COLUMNS, "--model", "mf", "--epochs", "4", "--set", "embedding_dim=4", "--json"]


@pytest.fixture
def search(cli, clicks, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rankformer.tuning.plot.draw", lambda study: True)  # which takes longer than the search

    def run(folder, trials, *more, storage=f"sqlite:///{tmp_path}/search.db"):
        return cli("tune", clicks, "--out", folder, "--trials", trials, "--storage", storage, *SEARCH, *more)

    return run


def without_times(trials):
    return [{key: value for key, value in trial.items() if key != "seconds"} for trial in trials]


def test_another_folder_continues_the_search(search, cli, clicks, tmp_path):  # noqa: F811
    first = search("a", 2).json["trials"]
    second = search("b", 3).json["trials"]
    assert second[:2] == first
    alone = cli("tune", clicks, "--out", "c", "--trials", 3, *SEARCH).json["trials"]
    assert without_times(alone) == without_times(second)  # as it would have been without a database
    [name] = optuna.get_all_study_names(f"sqlite:///{tmp_path}/search.db")
    assert name.startswith("mf on clicks ")
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path}/search.db")
    assert [trial.value for trial in study.trials] == [trial["value"] for trial in second]
    assert study.best_trial.params == max(second, key=lambda trial: trial["value"])["settings"]
    other = search("d", 1, "--seed", "5")
    assert (other.code, len(other.json["trials"])) == (0, 1)
    assert len(optuna.get_all_study_names(f"sqlite:///{tmp_path}/search.db")) == 2


def test_trials_that_the_database_missed_are_added(search, tmp_path):
    search("a", 1)
    shutil.copy(tmp_path / "search.db", tmp_path / "before.db")
    found = search("a", 2).json["trials"]
    shutil.copy(tmp_path / "before.db", tmp_path / "search.db")
    assert search("a", 2).json["trials"] == found
    assert search("b", 2).json["trials"] == found


def test_other_trials_of_the_same_search_are_refused(search, tmp_path):
    search("a", 1)
    (tmp_path / "search.db").rename(tmp_path / "other.db")
    search("b", 1)  # the same settings; other seconds
    with sqlite3.connect(tmp_path / "search.db") as database:
        [[text]] = database.execute("select value_json from trial_user_attributes")
        changed = json.dumps({**json.loads(text), "value": 0.5})
        database.execute("update trial_user_attributes set value_json = ?", (changed,))
    refused = search("a", 2)
    assert refused.code == 2
    assert "has other trials of this search than --out" in refused.err


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://me:s3cret@127.0.0.1:9/db", "postgresql://me:***@127.0.0.1:9/db cannot be used"),
        ("postgresql://me@127.0.0.1:9/db?password=s3cret", "postgresql://me@127.0.0.1:9/db cannot be used"),
        ("postgresql://me:x@s3cret@127.0.0.1:9/db", "postgresql://me:***@127.0.0.1:9/db cannot be used"),
        ("postgresql://me:s3cret@127.0.0.1:port/db", "expected sqlite:///FILE or postgresql://user@host/database"),
        ("sqlite:////no/such/folder/x.db", "unable to open database file"),
        ("redis://me:s3cret@host", "expected sqlite:///FILE or postgresql://user@host/database"),
        ("s3cret", "expected sqlite:///FILE"),
    ],
)
def test_a_database_that_cannot_be_used(search, address, message):
    needed("psycopg")
    outcome = search("a", 1, storage=address)
    assert outcome.code == 2
    assert message in outcome.err
    assert "s3cret" not in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_postgres_and_its_password(search, postgres, tmp_path):
    found = search("a", 2, storage=postgres.url)
    assert found.code == 0, found.err
    assert search("b", 2, storage=postgres.url).json["trials"] == found.json["trials"]
    written = "".join(path.read_text() for path in (tmp_path / "a").rglob("*.*") if path.suffix != ".png")
    assert postgres.password not in written + found.out + found.err
