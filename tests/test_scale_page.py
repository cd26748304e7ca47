"""docs/scale.md: its tables are what the script computes, and its commands run."""

import json
import re

import pytest
from benchmarks import scale

from rankformer.cli.main import run

PAGE = scale.PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_script():
    assert scale.page_with("\n".join(scale.lines()), PAGE) == PAGE, "python -m benchmarks.scale --write"


def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user},i{(3 * user + 7 * n) % 50},{20 * user + n}" for user in range(40) for n in range(20)]
    (tmp_path / "clicks.csv").write_text("\n".join(["user,item,time", *rows]) + "\n")
    commands = re.findall(r"^    rankformer (.*)$", PAGE, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["data", "plan"]
    for command in commands:
        assert run([*command.split(), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
    assert document["ranks"]["ranks"] == 4
    named = re.findall(r"^    (shards/\S+)", PAGE, re.MULTILINE)
    assert named
    assert all((tmp_path / name).is_file() for name in named)
    inline = ["train", "shards", "--out", "run", "--model", "popularity"]  # the page's command, with a quick model
    assert "rankformer train shards --out run" in PAGE
    assert run([*inline, "--json"]) == 0
