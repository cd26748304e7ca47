"""Which code a result came from: a hash that changes when the result may, and not when a comment does.

It covers the modules that the given ones import, directly or not, each as its syntax tree without docstrings, and
torch's version. So a new method, a page of the service or a sentence in a docstring leaves cached results as they are,
and a change of the training loop, of a layer, or of the method itself does not.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]

# Modules that are imported on the way but that no number passes through: they list, store, answer or complain. What
# the readers of data do is in the data's own fingerprint.
NO_INFLUENCE = frozenset(
    {
        "rankformer",
        "rankformer.errors",
        "rankformer.files",
        "rankformer.runs.run",
        "rankformer.models.registry",
        "rankformer.scoring.explanation",
        "rankformer.scoring.raw_ids",
        "rankformer.scoring.recommendations",
        "rankformer.data.cleaning",
        "rankformer.data.columns",
        "rankformer.data.demo",
        "rankformer.data.delimited",
        "rankformer.data.readers",
        "rankformer.data.registry",
        "rankformer.data.source",
        "rankformer.data.splits",
        "rankformer.data.tables",
        "rankformer.data.text_lines",
        "rankformer.research.cells",
    }
)


@cache
def code_version(*modules: str) -> str:
    """Return 16 hexadecimal digits over all code that the modules' results depend on."""
    digest = hashlib.sha256(str(torch.__version__).encode())
    for name in influences(*modules):
        digest.update(f"\n{name} {_digest(_file_of(name))}".encode())
    return digest.hexdigest()[:16]


def influences(*modules: str) -> list[str]:
    """Return the names of all modules of this package that the given ones build on, themselves included, sorted."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in NO_INFLUENCE:
            found.add(name)
            waiting += _imports(_file_of(name))
    return sorted(found)


def _file_of(name: str) -> Path:
    path = ROOT.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _is_module(name: str) -> bool:
    return name.split(".")[0] == "rankformer" and _file_of(name).is_file()


@cache
def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if _is_module(name)]


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(_plain_code(path).encode()).hexdigest()


def _plain_code(path: Path) -> str:
    """Return a module's syntax tree as text, without comments, layout and texts that are statements of their own."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_docstring(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
