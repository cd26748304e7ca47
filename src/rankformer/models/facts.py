"""The facts of the built-in models, read from their source without importing torch."""

import ast
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class ModelFacts:
    """What a model class says of itself.

    Attributes:
        class_name: of the class.
        module: that defines it.
        name: of the method on the command line.
        title: of the method in tables.
        summary: first line of the class docstring.
    """

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
    values = {
        target.id: node.value.value
        for node in found.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    summary = (ast.get_docstring(found) or "").splitlines()[0]
    return ModelFacts(class_name, module, str(values["name"]), str(values["title"]), summary)


def _tree_of(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
