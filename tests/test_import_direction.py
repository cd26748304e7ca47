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

# Each part of the package with the parts it may import; its own modules are always allowed. Learning (graph, layers,
# losses, training, models) and answering (scoring, evaluation, serving) meet at the Scorer and the run folder: the
# service never sees the trainer, and the trainer is handed `validate` as a function and never sees the evaluation.
# Fold-in needs the algebra of layers, so scoring may import them. Packages of the last lines stand on those above and
# none on another.
BASICS = {"errors", "settings", "files"}
MAY_IMPORT = {
    "errors": set(),
    "settings": {"errors"},
    "files": {"errors"},
    "data": BASICS,
    "graph": BASICS | {"data"},
    "initialization": {"errors", "graph"},
    "layers": BASICS | {"graph"},
    "losses": BASICS | {"graph"},
    "scoring": BASICS | {"data", "graph", "layers"},
    "evaluation": BASICS | {"data", "graph", "scoring"},
    "training": BASICS | {"graph", "initialization", "losses", "scoring"},
    "runs": BASICS | {"data", "graph", "scoring", "evaluation", "training"},
    "models": BASICS | {"graph", "initialization", "layers", "losses", "scoring", "training", "runs"},
    "tuning": BASICS | {"data", "evaluation", "training", "runs", "models"},
    "planning": BASICS | {"data", "graph", "scoring", "evaluation", "training", "models"},
    "research": BASICS | {"data", "graph", "layers", "evaluation", "runs", "models"},
    "export": BASICS | {"data", "scoring", "runs"},
    "serving": BASICS | {"data", "scoring", "runs"},
    "tracking": BASICS | {"scoring", "runs"},
    "adapters": BASICS | {"data", "scoring", "evaluation", "models"},
}
ANYTHING = {"cli", "__main__"}  # may import every part, and no part may import them
ROOT_MODULES = {"errors", "settings", "files", "initialization"}
MOST_PACKAGES = 6  # that a package imports, but for `cli` and `runs`, which put the others together

# What to read to know Rankformer, from its model file to the loop that trains it.
READING_PATH = [
    "rankformer.models.rankformer",
    "rankformer.layers.rank_attention",
    "rankformer.models.trained",
    "rankformer.training.network",
    "rankformer.losses.bpr",
    "rankformer.training.trainer",
]
MOST_LINES = 900


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


PACKAGES = sorted({part_of(module) for module in INNER if MODULES[module].parent != ROOT})


def test_the_table_names_every_part_and_no_other():
    assert set(MAY_IMPORT) == ROOT_MODULES | set(PACKAGES) - ANYTHING
    assert {part_of(module) for module in INNER} == set(MAY_IMPORT) | ANYTHING


@pytest.mark.parametrize("package", [package for package in PACKAGES if package not in ("cli", "runs")])
def test_no_package_imports_more_than_six_others(package):
    """Imports inside functions and for type checkers count as well."""
    modules = [module for module in INNER if part_of(module) == package]
    found = {part_of(imported) for module in modules for imported, _ in imports(module) if imported != "rankformer"}
    others = found & set(PACKAGES) - {package}
    assert len(others) <= MOST_PACKAGES, f"{package} imports {', '.join(sorted(others))}"


def test_rankformer_can_be_read_from_its_model_file_to_the_training_loop():
    sizes = {module: len(MODULES[module].read_text(encoding="utf-8").splitlines()) for module in READING_PATH}
    assert sum(sizes.values()) <= MOST_LINES, sizes
    for number, module in enumerate(READING_PATH[1:], start=1):
        before = READING_PATH[:number]
        assert any(module in reached_from(reader) for reader in before), f"no file before {module} imports it"


def reached_from(module):
    """The modules that one imports, by itself or through the `__init__.py` of a package."""
    direct = {imported for imported, _ in imports(module)}
    packages = [imported for imported in direct if MODULES[imported].name == "__init__.py"]
    return direct.union(*({imported for imported, _ in imports(package)} for package in packages))


@cache
def scorer_classes():
    """Names of the subclasses of `Scorer` in `scoring`."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "scoring").rglob("*.py")]
    bases = {
        node.name: {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"Scorer"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found - {"Scorer"}


def classes_asked_for(tree):
    """Names of the classes in `isinstance`, `issubclass` and `case Class(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            for inner in ast.walk(node.args[1]):
                if isinstance(inner, ast.Name | ast.Attribute):
                    yield ast.unparse(inner).rpartition(".")[2]
        elif isinstance(node, ast.MatchClass):
            yield ast.unparse(node.cls).rpartition(".")[2]


@pytest.mark.parametrize("module", [module for module in INNER if part_of(module) != "scoring"])
def test_only_scoring_asks_what_kind_of_scorer_it_has(module):
    asked = set(classes_asked_for(ast.parse(MODULES[module].read_text(encoding="utf-8"))))
    kinds = asked & scorer_classes()
    assert not kinds, f"{module} asks for {', '.join(kinds)}; ask the scorer what it can do"


def modules_after(statement):
    code = f"{statement}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_no_module_imports_an_adapter():
    """They import libraries that need not be installed; nothing here may need them."""
    for module in INNER:
        if part_of(module) != "adapters":
            assert not any(imported.startswith("rankformer.adapters") for imported, _ in imports(module)), module


def test_importing_the_package_is_free():
    loaded = modules_after("import rankformer")
    assert "rankformer" in loaded
    assert not loaded & {"torch", "numpy", "pyarrow", "pydantic", "scipy", "typer", "rich"}


LEARNING = ("rankformer.training", "rankformer.models", "rankformer.losses")


def test_answering_does_not_load_the_trainer():
    loaded = modules_after("import rankformer.runs.saved, rankformer.evaluation.evaluator")
    assert not {name for name in loaded if name.startswith(LEARNING)}


def test_the_service_does_not_load_the_trainer():
    serving = [module for module in INNER if part_of(module) == "serving"]
    needed = {imported for module in serving for imported, _ in imports(module) if part_of(imported) != "serving"}
    assert {"rankformer.scoring.options", "rankformer.runs.saved"} <= needed
    loaded = modules_after(f"import {', '.join(sorted(needed))}")
    assert not {name for name in loaded if name.startswith(LEARNING)}


@pytest.mark.parametrize("arguments", [["--help"], ["models"], ["data", "info", "demo"]], ids=" ".join)
def test_a_command_that_needs_no_torch_does_not_load_it(arguments):
    command = (
        "import sys\n"
        "from rankformer.cli.main import run\n"
        f"sys.argv = ['rankformer', *{arguments!r}]\n"
        "try:\n"
        "    code = run()\n"
        "except SystemExit as end:\n"
        "    code = end.code\n"
        "assert not code, code\n"
        "assert 'rankformer.cli.main' in sys.modules\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_checks_see_imports():
    assert ("rankformer.errors", "ConfigError") in imports("rankformer.settings")
    assert len(INNER) > 40
    assert {"Embeddings", "ItemScorer", "AspectScorer"} <= scorer_classes()
    example = ast.parse("isinstance(a, (int, scoring.Embeddings)) or issubclass(b, ItemScorer | None)")
    assert {"Embeddings", "ItemScorer"} <= set(classes_asked_for(example))
