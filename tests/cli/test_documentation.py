"""The pages of docs/: their commands exist and, where that is cheap, run; so do their programs and the notebooks."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import typer
import yaml
from tests.ports import free_port

from rankformer.cli.main import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
APPLICATION = typer.main.get_command(app)
# Pages whose shell and Python blocks are run in order, in an empty folder; other pages have tests of their own.
RUN = [
    "install.md",
    "tutorial.md",
    "updates.md",
    *(f"how-to/{page.name}" for page in sorted((DOCS / "how-to").glob("*.md"))),
]
BLOCK = re.compile(r"^```(sh|python)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL_WORDS = {"|", "&", "&&", ">", ";"}
SHELL = re.compile(r"[|&;$<>]")
QUICK = ["--set", "members=item-knn,popularity", "--set", "tune=false"]  # in place of the blend's own members


def chunks(block):
    """Split shell lines into single `rankformer` commands and what only a shell can run, services among it."""
    waiting, ends_with = [], None
    for line in block.splitlines():
        if ends_with is None and line.startswith("rankformer ") and not SHELL.search(line.partition(" # ")[0]):
            if waiting:
                yield "\n".join(waiting)
            waiting = []
            yield line
            continue
        waiting.append(line)
        here = re.search(r"<<'(\w+)'", line)
        ends_with = here[1] if here else None if line == ends_with else ends_with
    if waiting:
        yield "\n".join(waiting)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """One bash for a whole page, in which `rankformer` is this one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, target in (("rankformer", "-m rankformer"), ("python", "")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {target} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    source = str(ROOT / "src")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": source}
    with open(tmp_path / "output", "w") as output:  # a file: a service that is left would hold a pipe open
        bash = subprocess.Popen(["bash", "-e"], stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment)
    done = tmp_path / "done"

    def run(script):
        bash.stdin.write(f"{script}\ntouch {done}\n".encode())
        bash.stdin.flush()
        while not done.exists():
            time.sleep(0.05)
            if bash.poll() is not None:
                pytest.fail(f"{script}\n{(tmp_path / 'output').read_text()}")
        done.unlink()

    yield run
    bash.stdin.close()
    assert bash.wait(60) == 0


@pytest.mark.parametrize("name", RUN)
def test_what_the_page_shows_runs(name, cli, shell, one_thread):
    port = str(free_port())
    for language, title, block in BLOCK.findall((DOCS / name).read_text(encoding="utf-8")):
        if title:
            Path(title).write_text(block, encoding="utf-8")
        elif language == "python":
            exec(compile(block, name, "exec"), {"__name__": "page"})  # noqa: S102
        else:
            for chunk in chunks(block.replace("8000", port)):
                if not chunk.startswith("rankformer ") or SHELL.search(chunk.partition(" # ")[0]):
                    shell(chunk)
                    continue
                words = shlex.split(chunk, comments=True)[1:]
                blend = words[0] == "train" and not {"--model", "--config"} & set(words)
                outcome = cli(*words, *(QUICK if blend else []))
                assert outcome.code == 0, (chunk, outcome.err)


def commands_of(page):
    """The words of every command line in the code of a page that is not a pattern with parts to choose from."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = "\n".join(re.findall(r"^```(?:sh|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    indented = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    prompt = any(line.startswith("$ ") for line in indented)  # then lines without one are output
    for line in [*fenced, *(line.removeprefix("$ ") for line in indented if not prompt or line.startswith("$ "))]:
        if line.startswith("rankformer ") and "[-" not in line and "..." not in line and "EXPERIMENT" not in line:
            words = shlex.split(line, comments=True)[1:]
            yield words[: next((place for place, word in enumerate(words) if word in SHELL_WORDS), None)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_command_of_a_page_is_one(page):
    for words in commands_of(page):
        command, rest = APPLICATION, list(words)
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, words
            command = command.commands[rest.pop(0)]
        if not hasattr(command, "commands"):
            command.make_context("rankformer", rest).close()  # refuses options that do not exist


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are not kept: they hold figures and paths of one machine"
            exec(compile("".join(cell["source"]), path.name, "exec"), names)  # noqa: S102
    assert "model" in names


def test_every_page_is_in_the_navigation():
    def pages(entries):
        for entry in entries:
            [value] = [entry] if isinstance(entry, str) else entry.values()
            yield from [value] if isinstance(value, str) else pages(value)

    navigation = set(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert {str(page.relative_to(DOCS)) for page in PAGES} <= navigation


def test_the_extras_are_those_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (DOCS / "install.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert set(shown) == set(extras)
    for name, brings in shown.items():
        packages = {re.match(r"[\w-]+", needed)[0] for needed in extras[name]}
        listed = set(brings.split(", ")) - {"..."}
        assert listed <= packages, name
        assert "..." in brings or listed == packages, name
