"""What `rankformer serve` refuses before it starts; what it does afterwards is in tests/serving."""

import pytest
import typer

from rankformer.cli.main import app
from rankformer.serving.settings import ServiceSettings


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch):
    monkeypatch.delenv("RANKFORMER_TOKEN", raising=False)
    monkeypatch.delenv("RANKFORMER_ADMIN_TOKEN", raising=False)


def test_an_address_that_others_can_reach_needs_a_token(cli, finished):
    outcome = cli("serve", finished, "--host", "0.0.0.0")
    assert outcome.code == 2
    assert "RANKFORMER_TOKEN" in outcome.error


@pytest.mark.parametrize("variable", ["RANKFORMER_TOKEN", "RANKFORMER_ADMIN_TOKEN"])
def test_a_short_token_is_refused_and_not_shown(cli, finished, monkeypatch, variable):
    monkeypatch.setenv(variable, "hunter2")
    outcome = cli("serve", finished)
    assert outcome.code == 2
    assert variable in outcome.error
    assert "hunter2" not in outcome.error


def test_a_folder_that_is_no_run(cli, tmp_path):
    outcome = cli("serve", tmp_path)
    assert outcome.code == 2
    assert "has no manifest.json" in outcome.error


@pytest.mark.parametrize("extra", [["--max-k", 0], ["--port", 70000], ["--workers", 0], ["--request-timeout", 0]])
def test_numbers_outside_their_range(cli, finished, extra):
    assert cli("serve", finished, *extra).code == 2


def test_a_help_with_examples(cli):
    outcome = cli("serve", "--help")
    assert outcome.code == 0
    assert "rankformer serve runs/demo" in outcome.out


@pytest.mark.parametrize(
    ("text", "message"), [("available", "expected a name and a file"), ("a=none.txt", "is not a file")]
)
def test_item_sets_are_checked_before_anything_starts(cli, finished, text, message):
    outcome = cli("serve", finished, "--item-set", text)
    assert outcome.code == 2
    assert message in outcome.error


def test_the_defaults_are_those_of_the_service():
    command = typer.main.get_command(app).commands["serve"]
    fields = ServiceSettings.model_fields
    shared = {each.name: each.default for each in command.params if each.name in fields}
    assert len(shared) == 13
    assert shared == {name: fields[name].default for name in shared}
