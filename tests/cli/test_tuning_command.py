import inspect
import shlex
from pathlib import Path

from rankformer.cli.data_options import data_options
from rankformer.cli.tuning_command import commands_of


def words(command):
    return shlex.split(command)


def test_what_was_said_and_nothing_else():
    search = {"trials": 5, "space": Path("a b.toml"), "set": ["l2=0", "tau=0.5"], "epochs": None, "seed": 0}
    options = {"user": "who", "header": False, "parts": (0.5, 0.25, 0.25), "k_core": 3}
    commands = commands_of("mf", Path("out"), "my log.csv", options, search)
    said = ["--trials", "5", "--space", "a b.toml", "--set", "l2=0", "--set", "tau=0.5", "--seed", "0"]
    read = ["--user-column", "who", "--no-header", "--parts", "0.5,0.25,0.25", "--k-core", "3"]
    assert words(commands.search) == ["rankformer", "tune", "my log.csv", "--model", "mf", *said, *read]
    # The configuration says how the data is read.
    assert words(commands.training) == [
        *("rankformer", "train", "my log.csv", "--out", "out/run", "--config", "out/best.toml")
    ]


def test_every_data_option_has_its_flag():
    for name in inspect.signature(data_options).parameters:
        assert " --" in commands_of("mf", Path("out"), "log", {name: "x"}, {}).search.removeprefix(
            "rankformer tune log --model mf"
        )


def test_a_line_stays_one_line():
    assert "\n" not in commands_of("mf", Path("out"), "a\nb", {}, {}).search
