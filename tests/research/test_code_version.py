from pathlib import Path

import pytest

from rankformer.models.registry import MODELS
from rankformer.research import code_version as module
from rankformer.research.code_version import NO_INFLUENCE, influences

TRAINED = "rankformer.research.trained"


def test_a_result_depends_on_layer_loop_and_evaluation_and_not_on_other_methods():
    found = influences(TRAINED, "rankformer.models.rankformer")
    for name in ("layers.rank_attention", "training.trainer", "evaluation.metrics", "graph.negatives", "settings"):
        assert f"rankformer.{name}" in found
    assert not {"rankformer.models.lightgcn", "rankformer.models.registry"} & set(found)
    assert not [name for name in found if name.startswith(("rankformer.cli", "rankformer.serving"))]


def test_every_module_that_is_left_out_exists():
    assert all(module._file_of(name).is_file() for name in NO_INFLUENCE)


def test_each_method_has_a_version_of_its_own():
    versions = {module.code_version(TRAINED, each.__module__) for each in MODELS.values()}
    assert len(versions) == len({each.__module__ for each in MODELS.values()})


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda text: text.replace("# shape", "# another shape"), True),
        (lambda text: text.replace("Return twice x.", "Return two x."), True),
        (lambda text: text + "\n\n", True),
        (lambda text: text.replace("2 * x", "3 * x"), False),
        (lambda text: text.replace('"word"', '"other"'), False),
    ],
)
def test_words_about_the_code_do_not_count_and_the_code_does(tmp_path, change, same):
    text = '"""A module."""\n\nNAME = "word"\n\n\ndef f(x):\n    """Return twice x."""\n    return 2 * x  # shape\n'
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(text)
    after.write_text(change(text))
    assert after.read_text() != text
    assert (module._plain_code(before) == module._plain_code(after)) is same


def test_the_version_changes_with_a_file_it_builds_on(tmp_path, monkeypatch):
    root = tmp_path / "rankformer"
    root.mkdir()
    (root / "top.py").write_text("from rankformer.base import two\n")
    (root / "base.py").write_text("two = 2\n")
    monkeypatch.setattr(module, "ROOT", root)

    def version() -> str:
        module._imports.cache_clear()
        module._digest.cache_clear()
        return module.code_version.__wrapped__("rankformer.top")

    before = version()
    (root / "base.py").write_text("two = 3\n")
    assert version() != before
    (root / "base.py").write_text("two = 2  # as it was\n")
    assert version() == before
    assert Path(root / "top.py").is_file()
