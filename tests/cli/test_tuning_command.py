import shlex

import pytest
import typer

from rankformer.cli.data_options import DATA_FLAGS
from rankformer.cli.main import app
from rankformer.cli.tune import search_command, training_command


@pytest.fixture
def noted():
    """Returns the words of the noted command for words given to `tune`."""
    command = typer.main.get_command(app).commands["tune"]

    def call(*words):
        return shlex.split(search_command(command.make_context("tune", list(words)), "mf"))

    return call


def test_what_was_given_and_nothing_else(noted):
    searched = ["--trials", "5", "--space", "a b.toml", "--set", "l2=0", "--set", "tau=0.5", "--seed", "0"]
    read = ["--user-column", "who", "--no-header", "--k-core", "3", "--parts", "0.5,0.25,0.25"]
    other = ["--out", "elsewhere", "--json", "--threads", "2", "--timeout", "9", "--device", "cpu"]
    words = noted("my log.csv", *other, *searched, *read)
    assert words == ["rankformer", "tune", "my log.csv", "--model", "mf", *searched, *read]


def test_every_data_option_has_its_flag(noted):
    command = typer.main.get_command(app).commands["tune"]
    flags = {option.name: option.opts[0] for option in command.params}
    for name in DATA_FLAGS:
        given = [flags[name]] if name == "header" else [flags[name], "3"]
        assert flags[name] in noted("log", *given)


def test_the_training_reads_the_configuration(tmp_path):
    # The configuration says how the data is read.
    words = shlex.split(training_command("my log.csv", tmp_path, "best.toml"))
    run, configuration = str(tmp_path / "run"), str(tmp_path / "best.toml")
    assert words == ["rankformer", "train", "my log.csv", "--out", run, "--config", configuration]


def test_a_line_stays_one_line(tmp_path):
    assert "\n" not in training_command("a\nb", tmp_path, "best.toml")
