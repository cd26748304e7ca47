"""The commands and the code of docs/export.md do what the page says."""

import sys

import pytest
from tests.tracking.guide import EXPORT, blocks, run

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]  # each command is a process of its own


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
