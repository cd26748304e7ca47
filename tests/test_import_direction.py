"""Who may import whom: learning on one side, answering on the other, and no way back."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import rankformer

ROOT = Path(rankformer.__file__).parent

# Each part of the package with the parts it may import; its own modules are always allowed. The service (`serving`)
# answers from a run folder and never sees the trainer; the trainer is handed `validate` as a function and never sees
# the evaluation; learning and answering meet at `embeddings`, and `models` is where they are put together.
ANSWERING = {"retrieval", "embeddings", "data", "errors"}
LEARNING = {"graph", "embeddings", "errors", "settings", "files"}
MAY_IMPORT = {
    "errors": set(),
    "settings": {"errors"},
    "files": {"errors"},
    "data": {"errors", "settings", "files"},
    "embeddings": {"errors"},
    "rank_weights": {"errors"},
    "aspects": set(),
    "graph": {"data", "errors"},
    "layers": {"graph", "rank_weights", "aspects", "errors"},
    "retrieval": {"embeddings", "data", "rank_weights", "aspects", "errors"},
    "evaluation": ANSWERING,
    "training": LEARNING,
    "run_folder": ANSWERING | {"files"},
    "models": ANSWERING | LEARNING | {"layers", "rank_weights", "aspects", "evaluation", "training", "run_folder"},
    "planning": ANSWERING | LEARNING | {"evaluation", "training", "models"},
    "tuning": {"models", "data", "settings", "errors", "files", "evaluation", "training"},
    "exhibits": ANSWERING | LEARNING | {"layers", "rank_weights", "evaluation", "training", "models", "run_folder"},
    "export": ANSWERING | {"files", "run_folder"},
    "serving": {"retrieval", "run_folder", "errors", "settings"},
}
ANYTHING = {"cli", "__main__"}  # may import every part, and no part may import them


def name_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
# The front door loads names on first use; what its type-checking block names is tested elsewhere.
INNER = [name for name in MODULES if name != "rankformer"]


def part_of(module):
    return module.split(".")[1]


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def import_nodes(tree, at_import_only):
    """The import statements, without those inside functions when only what runs at import is asked for."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (at_import_only and (is_type_checking(node) or isinstance(node, ast.FunctionDef))):
            yield from import_nodes(node, at_import_only)


@cache
def imports(module, at_import_only=False):
    """(imported module, imported name or None) of each import from this package."""
    found = []
    for node in import_nodes(ast.parse(MODULES[module].read_text(encoding="utf-8")), at_import_only):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names if alias.name.split(".")[0] == "rankformer"]
            continue
        assert node.level == 0, f"{module} line {node.lineno}: write the whole name in place of a relative import"
        if (node.module or "").split(".")[0] == "rankformer":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.append((whole, None) if whole in MODULES else (node.module, alias.name))
    return found


@pytest.mark.parametrize("module", INNER)
def test_every_module_keeps_to_its_direction(module):
    part = part_of(module)
    if part in ANYTHING:
        return
    assert part in MAY_IMPORT, f"{part} is new: say in MAY_IMPORT what it may import"
    for imported, name in imports(module):
        if imported == "rankformer":
            assert name == "__version__", f"{module} imports the front door for {name}; import it from its home"
            continue
        other = part_of(imported)
        assert other == part or other in MAY_IMPORT[part], f"{module} ({part}) must not import {imported}"


def test_the_allowed_directions_have_no_way_back():
    try:
        tuple(TopologicalSorter(MAY_IMPORT).static_order())
    except CycleError as cycle:
        pytest.fail(f"the table allows a circle: {cycle.args[1]}")


@pytest.mark.parametrize("module", INNER)
def test_no_module_uses_another_modules_private_names(module):
    for imported, name in imports(module):
        private = [
            step for step in [*imported.split("."), name or ""] if step.startswith("_") and step != "__version__"
        ]
        assert not private, f"{module} imports {name or imported}, which is private to {imported}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: {imported for imported, _ in imports(module, True)} for module in INNER}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as cycle:
        pytest.fail(" imports ".join(reversed(cycle.args[1])))


def modules_after(statement):
    code = f"{statement}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_is_free():
    loaded = modules_after("import rankformer")
    assert "rankformer" in loaded
    assert not loaded & {"torch", "numpy", "pyarrow", "pydantic", "scipy", "typer", "rich"}


def test_answering_does_not_load_the_trainer():
    loaded = modules_after("import rankformer.runs.run, rankformer.evaluation.evaluator")
    assert not {name for name in loaded if name.startswith(("rankformer.training", "rankformer.graph"))}
    assert not {name for name in loaded if name.startswith(("rankformer.models", "rankformer.layers"))}


def test_the_checks_see_imports():
    assert ("rankformer.errors", "ConfigError") in imports("rankformer.settings")
    assert len(INNER) > 40
