"""The scorer as an ONNX program, in onnxruntime and in the evaluator of the package onnx."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from tests.export.conftest import ITEMS, USERS, make_run, odd_items
from tests.export.test_programs import WARM, known_pairs

from rankformer.errors import DataError, RankformerError
from rankformer.export import programs
from rankformer.export.exporter import export_run, make_target

TESTED = {"ONNX": ("target", "onnx"), "ONNX Runtime": ("target", "onnxruntime", "onnx")}

EVALUATORS = {
    "onnxruntime": lambda path: onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]),
    "onnx": ReferenceEvaluator,
}


@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize(("users", "k"), [(range(USERS), 10), ([WARM], 1), ([WARM, WARM, 2], ITEMS)])
def test_lists_are_those_of_recommend(saved, tmp_path, evaluator, users, k):
    ids, titles = odd_items()
    outcome = export_run(saved(item_ids=ids, titles=titles), make_target("onnx"), tmp_path / "out")
    assert outcome.self_test.searches == [f"onnxruntime {onnxruntime.__version__}"]
    recommender = make_run(item_ids=ids, titles=titles).recommender
    session = EVALUATORS[evaluator](str(tmp_path / "out" / "scorer.onnx"))
    inputs = {"users": np.array(users), "exclude": known_pairs(recommender, users), "k": np.array([k])}
    items, scores = session.run(["items", "scores"], inputs)
    assert items.shape == scores.shape == (len(users), k)
    for user, chosen, values in zip(users, items, scores, strict=True):
        if recommender.cold[user]:
            continue
        own = recommender.recommend([user], k).table
        left = np.isfinite(values)
        assert recommender.item_ids.take(chosen[left]).equals(own["item_id"].combine_chunks())
        assert np.allclose(values[left], own["score"].to_numpy(), atol=1e-5)


def test_metadata_and_limits(saved, tmp_path, monkeypatch):
    exported = export_run(saved(), make_target("onnx"), tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "scorer.onnx")
    assert json.loads({each.key: each.value for each in model.metadata_props}["rankformer"]) == exported.metadata
    assert {node.domain for node in model.graph.node} == {""}
    monkeypatch.setattr(programs, "MAX_ONNX_BYTES", 100)
    with pytest.raises(DataError, match="do not fit into an ONNX file of 2 GB; use --to torch-export"):
        export_run(saved(), make_target("onnx"), tmp_path / "other")


def test_a_program_with_other_numbers_fails_the_self_test(saved, tmp_path):
    class Shuffled(programs.OnnxProgram):
        def write(self, contents, folder):
            super().write(contents, folder)
            model = onnx.load(folder / "scorer.onnx")
            model.graph.node[1].input[0] = "users_table"  # the first users in place of those asked for
            onnx.save_model(model, folder / "scorer.onnx")

    with pytest.raises(RankformerError, match="self-test"):
        export_run(saved(), Shuffled(), tmp_path / "out")
