"""The public surface: what `rankformer` offers, and that every module says what it is."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import rankformer

ROOT = Path(rankformer.__file__).parent


def type_checking_names():
    """Name -> home module of the imports that only type checkers see."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    assert all(alias.asname == alias.name for node in block.body for alias in node.names), "re-export as the same name"
    return {alias.name: node.module for node in block.body for alias in node.names}


@pytest.mark.parametrize("name", rankformer.__all__)
def test_every_public_name_is_there_and_comes_from_where_type_checkers_think(name):
    home = type_checking_names()[name]
    assert getattr(rankformer, name) is getattr(import_module(home), name)


def test_the_lists_of_public_names_agree():
    assert list(rankformer.__all__) == sorted(type_checking_names())
    assert len(set(rankformer.__all__)) == len(rankformer.__all__)


def test_the_names_people_start_with_are_there():
    from rankformer import Interactions, Rankformer, evaluate  # noqa: F401
    from rankformer.layers import RankAttention  # noqa: F401


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known():
    with pytest.raises(AttributeError, match=r"no attribute 'Rankfromer'.*Rankformer"):
        rankformer.Rankfromer
    assert not hasattr(rankformer, "nothing_like_it")


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT).with_suffix(""))
)
def test_every_module_and_every_public_thing_in_it_has_a_docstring(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module does not say what it is"
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} does not say what it is"
