"""What is in the wheel and the source archive, and what they say of themselves."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Wheel and source archive, built from what git would build them from."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools before 77 does not know the licence's form")
    folder = tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a clone")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "experiments/", "docs/")):
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_bytes((ROOT / name).read_bytes())
    make = "from setuptools import build_meta as make; make.build_sdist('..'); make.build_wheel('..')"
    done = subprocess.run([sys.executable, "-c", make], cwd=folder / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [source] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def test_the_wheel_holds_every_file_of_the_package(archives):
    inside = set(zipfile.ZipFile(archives[0]).namelist())
    package = ROOT / "src" / "rankformer"
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert f"rankformer/{path.relative_to(package).as_posix()}" in inside
    assert "rankformer/py.typed" in inside
    assert any(name.startswith("rankformer/serving/page/") for name in inside)
    assert sum(name.endswith(".toml") for name in inside) > 10, "the configurations of reproduce"
    tops = {name.split("/")[0] for name in inside}
    assert tops == {"rankformer", f"rankformer-{PROJECT['version']}.dist-info"}


def test_the_wheel_says_what_it_needs(archives):
    with zipfile.ZipFile(archives[0]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        facts = Parser().parsestr(wheel.read(name).decode())
        [scripts] = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/entry_points.txt")]
    assert facts["Requires-Python"] == "<3.15,>=3.11"
    assert set(facts.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert "Typing :: Typed" in facts.get_all("Classifier")
    assert facts["License-Expression"] == "Apache-2.0"
    assert "rankformer = rankformer.cli.main:run" in scripts
    plain = {re.match(r"[\w-]+", line)[0] for line in facts.get_all("Requires-Dist") if "extra ==" not in line}
    assert plain == {"torch", "numpy", "scipy", "pyarrow", "pydantic", "typer", "rich", "safetensors"}


def test_the_source_archive_builds_the_same_package(archives):
    with tarfile.open(archives[1]) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    wheel = {name for name in zipfile.ZipFile(archives[0]).namelist() if name.startswith("rankformer/")}
    assert {f"src/{name}" for name in wheel} <= inside
    assert {"LICENSE", "README.md", "pyproject.toml"} <= inside


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert len(citation["preferred-citation"]["authors"]) == 9
    assert f"rankformer-{PROJECT['version']}-py3-none-any.whl" in (ROOT / "docs" / "install.md").read_text("utf-8")
