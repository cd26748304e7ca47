import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rankformer.cli.main import run

TINY = ["--set", "epochs=6", "--set", "validate_every=2", "--set", "embedding_dim=8", "--set", "num_layers=1"]
TINY += ["--model", "rankformer"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def progress(self) -> list[str]:
        """The lines on stderr without the warnings."""
        return [line for line in self.err.splitlines() if not line.startswith("warning: ")]

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line a failed command leaves, after making sure that it is alone."""
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path_factory):
    def refuse(*_: Any) -> None:
        raise AssertionError("a test must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("RANKFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("RANKFORMER_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("rankformer.cli.progress.FIRST_LINE_AFTER", 300.0)  # however busy the machine is


@pytest.fixture
def cli(capsys) -> Callable[..., Outcome]:
    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


def write_clicks(path: Path, header: str = "visitor,product,name") -> Path:
    """Write 12 users x 10 items in two tastes; even users like even items."""
    rows = [
        f"u{user},{item},Product {item}"
        for user in range(12)
        for item in range(10)
        if (user + item) % 2 == 0 or (user * item) % 7 == 3
    ]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


CLICK_COLUMNS = ["--user-column", "visitor", "--item-column", "product", "--title-column", "name"]


@pytest.fixture(scope="session")
def clicks(tmp_path_factory) -> Path:
    return write_clicks(tmp_path_factory.mktemp("clicks") / "clicks.csv")


@pytest.fixture(scope="session")
def finished(tmp_path_factory, clicks) -> Path:
    """A small finished run that was not refitted; copy it before changing it."""
    folder = tmp_path_factory.mktemp("runs") / "clicks"
    assert run(["train", str(clicks), "--out", str(folder), "--seed", "3", "--no-refit", *CLICK_COLUMNS, *TINY]) == 0
    return folder


@pytest.fixture(scope="session")
def refitted(tmp_path_factory, clicks) -> Path:
    """The same run as `train` makes it by default, refitted on the whole log."""
    folder = tmp_path_factory.mktemp("runs") / "refitted"
    assert run(["train", str(clicks), "--out", str(folder), "--seed", "3", *CLICK_COLUMNS, *TINY]) == 0
    return folder
