"""The public surface: what `rankformer` offers, and that every module says what it is."""

import ast
import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import rankformer
from rankformer.models.base import Model
from rankformer.models.registry import MODELS

ROOT = Path(rankformer.__file__).parent


def type_checking_names():
    """Name -> home module of the imports that only type checkers see; `import *` stands for the models."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    found = {}
    for node in block.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            if alias.name == "*":
                assert node.module == "rankformer.models.registry"
                found |= {model.__name__: model.__module__ for model in MODELS.values()}
                found["load_model"] = node.module
            else:
                assert alias.asname == alias.name, "re-export as the same name"
                found[alias.name] = node.module
    return found


@pytest.mark.parametrize("name", rankformer.__all__)
def test_every_public_name_is_there_and_comes_from_where_type_checkers_think(name):
    home = type_checking_names()[name]
    assert getattr(rankformer, name) is getattr(import_module(home), name)


def test_the_lists_of_public_names_agree():
    assert list(rankformer.__all__) == sorted(type_checking_names())
    assert len(set(rankformer.__all__)) == len(rankformer.__all__)
    assert dir(rankformer) == sorted([*rankformer.__all__, "__version__"])


def test_every_model_of_the_registry_is_a_public_name():
    for model in MODELS.values():
        assert getattr(rankformer, model.__name__) is model
    public = {name for name in rankformer.__all__ if isinstance(getattr(rankformer, name), type)}
    models = {name for name in public if issubclass(getattr(rankformer, name), Model)}
    assert models == {model.__name__ for model in MODELS.values()}


def test_the_version_is_that_of_the_installed_package():
    assert rankformer.__version__ == version("rankformer")


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "rankformer", "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: rankformer" in done.stdout
    wrong = subprocess.run([sys.executable, "-m", "rankformer", "no-such-command"], capture_output=True, text=True)
    assert wrong.returncode == 2


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_constructor_shows_the_hyperparameters(model):
    parameters = inspect.signature(model).parameters
    fields = model.settings_class.model_fields
    assert list(parameters) == list(fields)
    assert {"seed", "device"} < set(parameters)
    for name, field in fields.items():
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == field.default
        assert parameters[name].annotation == field.annotation


@pytest.mark.timeout(900)
def test_a_type_checker_knows_the_hyperparameters_of_every_model(tmp_path):
    names = [model.__name__ for model in MODELS.values()]
    lines = [f"from rankformer import {', '.join(names)}"]
    lines += ["Rankformer(tau=0.3)", "Rankformer(tua=0.3)"]
    for model in MODELS.values():
        name, field = next(iter(model.settings_class.hyperparameter_fields().items()))
        lines += [f"{model.__name__}(seed=1, {name}={field.default!r})", f"{model.__name__}(no_such_setting=1)"]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    environment = {**os.environ, "MYPYPATH": str(ROOT.parent)}
    options = ["--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"]
    options += ["--ignore-missing-imports", "--no-error-summary", "--hide-error-context", "--output=json"]
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    errors = [found for found in map(json.loads, done.stdout.splitlines()) if found["severity"] == "error"]
    assert [found["line"] for found in errors] == list(range(3, len(lines) + 1, 2)), done.stdout
    assert {found["code"] for found in errors} == {"call-arg"}


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
