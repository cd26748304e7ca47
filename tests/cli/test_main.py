import json
import os
import signal
import subprocess
import sys
import time

import pytest
import typer

from rankformer.cli.main import NO_MEMORY, app, run
from rankformer.errors import DataError, TrainingError
from rankformer.models.registry import MODELS

APPLICATION = typer.main.get_command(app)
COMMANDS = [
    [],
    ["demo"],
    ["train"],
    ["update"],
    ["compare"],
    ["evaluate"],
    ["recommend"],
    ["similar"],
    ["explain"],
    ["serve"],
    ["export"],
    ["plan"],
    ["tune"],
    ["reproduce"],
    ["models"],
    ["data"],
    ["data", "list"],
    ["data", "info"],
    ["data", "split"],
    ["data", "shard"],
    ["data", "convert"],
    ["data", "download"],
]


def python(*arguments, **options):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_help_reads_well_and_has_an_example(cli, words):
    outcome = cli(*words, "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    assert "Usage: " + " ".join(["rankformer", *words]) in outcome.out
    assert "rankformer " in outcome.out.split("╯")[-1]  # the example below the last panel


def test_the_help_is_grouped_by_task(cli):
    shown = cli("--help").out
    headings = [line.split("─ ")[1].split(" ─")[0] for line in shown.splitlines() if line.startswith("╭")]
    assert headings == ["Options", "Start", "Train", "Use a trained model", "Research"]
    assert all(f"│ {words[0]} " in shown for words in COMMANDS if len(words) == 1)


def leaves(command, path=""):
    """Return every command by its words, groups resolved."""
    if not hasattr(command, "commands"):
        return {path: command}
    return {
        name: leaf
        for word, part in command.commands.items()
        for name, leaf in leaves(part, f"{path} {word}".strip()).items()
    }


def test_options_that_apply_are_the_same_everywhere():
    options = {name: {word for each in leaf.params for word in each.opts} for name, leaf in leaves(APPLICATION).items()}
    having = {word: {name for name in options if word in options[name]} for word in ("--json", "--threads", "--device")}
    assert set(options) - having["--json"] == {"serve"}  # whose answers are JSON
    reading = {name for name in options if name.startswith("data ")} | {"models"}
    assert set(options) - having["--threads"] == reading | {"demo"}  # which is fastest with one
    assert having["--device"] == {"train", "update", "tune", "reproduce"}  # whatever trains but the demo
    writing = {name for name in options if "--out" in options[name]}
    replacing = {"train", "update", "recommend", "export", "data convert"}
    assert {name for name in writing if "--overwrite" in options[name]} == replacing
    assert {name for name in options if "--epochs" in options[name]} == {"train", "tune", "reproduce"}


def test_the_shell_completes_commands_and_models():
    script = "import sys; from rankformer.cli.main import run; sys.exit(run([]))"
    for typed, expected in (("rankformer mod", "models"), ("rankformer train demo --model light", "lightgcn")):
        environment = {"_RANKFORMER_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": typed}
        assert expected in python("-c", script, env={**os.environ, **environment}).stdout


def test_no_words_show_the_help(cli):
    assert cli().out == cli("--help").out


def test_version(cli):
    outcome = cli("--version")
    assert (outcome.code, outcome.out.split()[0]) == (0, "rankformer")


def test_help_does_not_import_torch():
    script = (
        "import sys; from rankformer.cli.main import run; code = run(['train', '--help']); "
        "heavy = {'torch', 'pyarrow', 'numpy', 'pydantic_core'} & set(sys.modules); print(heavy, file=sys.stderr); "
        "sys.exit(code or bool({'torch', 'pyarrow'} & heavy))"
    )
    done = python("-c", script)
    assert done.returncode == 0, done.stderr


def test_the_spin_count_is_set_before_torch_is_there():
    script = (
        "import os, sys; import rankformer.cli.main; "
        "sys.exit(os.environ['GOMP_SPINCOUNT'] != '20000' or 'torch' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    assert python("-c", script, env=environment).returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "error: no such command 'trian'"),
        (["train"], "error: missing argument 'DATA' (see rankformer train --help)"),
        (["train", "demo"], "error: missing option '--out' (see rankformer train --help)"),
        (["train", "demo", "--out"], "(see rankformer train --help)"),
        (["train", "demo", "--out", "x", "--frobnicate"], "no such option: --frobnicate"),
        (["train", "demo", "--out", "x", "--seed", "one"], "invalid value for '--seed'"),
        (["data"], "error: missing command (see rankformer data --help)"),
        (["data", "info"], "(see rankformer data info --help)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_mistake_is_one_line(cli, words, expected):
    outcome = cli(*words)
    assert outcome.code == 2
    assert expected in outcome.error


@pytest.mark.parametrize("place", [0, 1, 3])
def test_debug_is_taken_anywhere_and_shows_the_traceback(cli, tmp_path, place):
    words = ["recommend", tmp_path / "none", "--all"]
    words.insert(place, "--debug")
    outcome = cli(*words)
    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: ")


def in_place_of(first, problem):
    problem.__context__ = first
    return problem


@pytest.mark.parametrize(
    ("problem", "code", "line"),
    [
        (TrainingError("step 3: the loss is not finite"), 1, "error: step 3: the loss is not finite"),
        (
            RuntimeError("boom\nsecond line"),
            1,
            "error: unexpected RuntimeError: boom second line (--debug shows where)",
        ),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device"),
        (OSError(30, "Read-only file system", "/x"), 2, "error: /x: Read-only file system"),
        (OSError(36, "File name too long", "x" * 5000), 2, f"error: {'x' * 300}...: File name too long"),
        (MemoryError(), 1, f"error: {NO_MEMORY}"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), 1, f"error: {NO_MEMORY}"),
        (OSError(12, "Cannot allocate memory"), 1, f"error: {NO_MEMORY}"),
        (in_place_of(MemoryError(), DataError("log.csv is not a whole file")), 1, f"error: {NO_MEMORY}"),
        (KeyboardInterrupt(), 130, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_problem_has_its_exit_code(cli, monkeypatch, problem, code, line):
    def fail(*_, **__):
        raise problem

    monkeypatch.setattr("rankformer.runs.saved.load_run", fail)
    outcome = cli("recommend", "x", "--all")
    assert outcome.code == code
    assert "Traceback" not in outcome.err
    if line is not None:
        assert outcome.error == line


@pytest.mark.parametrize(
    "words", [["recommend", "{}", "--user", "\udcff"], ["train", "demo", "--out", "{}/\udcff"], ["\udcff"]]
)
def test_arguments_that_are_not_utf8_are_refused(cli, tmp_path, words):
    outcome = cli(*(word.format(tmp_path) for word in words))
    assert outcome.code == 2
    assert "UTF-8" in outcome.error
    assert list(tmp_path.iterdir()) == []


def test_a_second_interrupt_adds_no_traceback(tmp_path):
    """Both arrive as fast as a user can press, while the first is being reported and after."""
    script = "import sys; from rankformer.cli.main import run; sys.exit(run())"
    settings = ("epochs=1000000", "validate_every=1", "patience=9999")
    flags = ["--model", "rankformer", *(word for setting in settings for word in ("--set", setting))]
    command = [sys.executable, "-c", script, "train", "demo", "--out", str(tmp_path / "run"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert any(line.startswith("epoch ") for line in process.stderr)  # it trains
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        error = process.stderr.read()
    assert "Traceback" not in error
    assert process.returncode == 130
    assert "--resume" in error


FINALIZED = """
class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
Finalized()
"""
SWALLOWED = """
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    pass
"""


@pytest.mark.parametrize(("drop", "again"), [(FINALIZED, 0), (SWALLOWED, 1)], ids=["by Python", "by a library"])
def test_an_interrupt_that_was_dropped_is_raised_again(drop, again):
    """Python drops what is raised in a finalizer; of what a library drops nobody hears, but the next one counts."""
    command = f"{drop}\nprint('dropped', flush=True)\ntime.sleep(300)"
    script = f"""
import signal, sys, time
from rankformer.cli import main
main.app.command("wait")(lambda: exec({command!r}, globals()))
sys.argv[1:] = ["wait"]
sys.exit(main.run())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"dropped\n"
            for _ in range(again):
                process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in error


def test_a_reader_that_leaves_is_no_error(finished):
    script = "import sys; from rankformer.cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "recommend", str(finished), "--all", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert [line for line in process.stderr if b" ... " not in line] == []  # which a slow step is told by


def test_models_are_one_line_each_without_torch():
    script = (
        "import sys; from rankformer.cli.main import run; code = run(['models', '--json']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    methods = json.loads(done.stdout)
    assert [method["name"] for method in methods] == list(MODELS)
    for method in methods:
        assert set(method) == {"name", "title", "summary"}
        assert method["title"] == MODELS[method["name"]].title
        assert method["summary"].endswith(".")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_tells_its_settings(cli, name):
    method = cli("models", name, "--json").json
    assert set(method) == {"name", "title", "summary", "paper", "settings", "uses_weights"}
    assert method["uses_weights"] == MODELS[name].uses_weights
    assert (method["name"], method["paper"]) == (name, MODELS[name].paper)
    assert not {"seed", "device"} & set(method["settings"])
    for setting in method["settings"].values():
        assert set(setting) == {"default", "type", "description"}
        assert setting["description"]
        assert "\n" not in setting["description"]


def test_types_of_settings_are_written_as_a_user_would(cli):
    settings = cli("models", "rankformer", "--json").json["settings"]
    assert settings["batch_size"]["type"] == "int or none"
    assert settings["negatives"]["type"] == "push or none or pull"


def test_models_by_name(cli):
    listed = cli("models").out
    lines = [line for line in listed.splitlines() if line.strip()]
    assert len(lines) == len(MODELS) + 3  # headings, a rule, and how to see more
    assert all(any(line.split()[0] == name for line in lines) for name in MODELS)
    assert "…" not in listed
    shown = cli("models", "rankformer").out
    assert "num_layers" in shown
    assert "popularity" not in shown
    assert "did you mean 'rankformer'" in cli("models", "rankfomer").error


def test_json_never_has_nan(capsys):
    from rankformer.cli.output import show_json

    show_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": ("é", None)})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": ["é", None]}


def test_control_characters_do_not_reach_the_terminal():
    from rankformer.cli.output import printable

    assert printable("a\x1b[31mb\nc é 漢") == "a\\x1b[31mb\\nc é 漢"


def test_run_takes_the_words_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rankformer", "--version"])
    assert run() == 0
    assert capsys.readouterr().out.startswith("rankformer ")
