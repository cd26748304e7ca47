"""The commands and the code of docs/items.md do what the page says."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "items.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The files the guide speaks of; orders of 20 users that know nothing of item 109."""
    monkeypatch.chdir(tmp_path)
    [products] = blocks("csv")
    Path("products.csv").write_text(products, encoding="utf-8")
    orders = [f"u{user},{101 + (user * 3 + step * (1 + user % 2)) % 8}" for user in range(20) for step in range(5)]
    Path("orders.csv").write_text("\n".join(["user,sku", *orders]) + "\n", encoding="utf-8")
    Path("campaign.txt").write_text("101\n104\n107\n109\n", encoding="utf-8")
    Path("sold-out.txt").write_text("107\n", encoding="utf-8")


def test_the_guide(cli, shop):
    commands = [
        line for block in blocks("sh") for line in block.splitlines() if not line.startswith("rankformer serve")
    ]
    assert len(commands) == 7
    for command in commands:
        outcome = cli(*shlex.split(command)[1:])
        assert outcome.code == 0, (command, outcome.err)
    [code] = blocks("python")
    Path("guide.py").write_text(code, encoding="utf-8")
    runpy.run_path("guide.py")
    rows = cli("recommend", "runs/shop", "--user", "u3", "--where", "cold", "--json").json["recommendations"]
    assert [row["item_id"] for row in rows] == [109]
