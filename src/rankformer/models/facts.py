"""The facts of the built-in models, read from their source without importing torch."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple


class ModelFacts(NamedTuple):
    """What a model class says of itself; the summary is the first line of its docstring."""

    class_name: str
    module: str
    name: str
    title: str
    summary: str


@cache
def built_in_models() -> tuple[ModelFacts, ...]:
    """Return the facts of every class that `models.registry` imports, in that order."""
    imports = [node for node in _tree_of("rankformer.models.registry").body if isinstance(node, ast.ImportFrom)]
    named = [(node.module or "", alias.name) for node in imports for alias in node.names if alias.asname == alias.name]
    return tuple(_facts(module, class_name) for module, class_name in named)


def _facts(module: str, class_name: str) -> ModelFacts:
    [found] = [node for node in _tree_of(module).body if isinstance(node, ast.ClassDef) and node.name == class_name]
    values = {ast.unparse(node.targets[0]): node.value for node in found.body if isinstance(node, ast.Assign)}
    name, title = (ast.literal_eval(values[fact]) for fact in ("name", "title"))
    return ModelFacts(class_name, module, name, title, (ast.get_docstring(found) or "").splitlines()[0])


def _tree_of(module: str) -> ast.Module:
    path = Path(__file__).parent / f"{module.rpartition('.')[2]}.py"
    return ast.parse(path.read_text(encoding="utf-8"))
