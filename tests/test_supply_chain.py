"""Locks, floors, bill of materials and licences agree with pyproject.toml, constraints.txt and the requirements."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("supply_chain", ROOT / "tools" / "supply_chain.py")
supply_chain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(supply_chain)
PLATFORMS = sorted(path for path in (ROOT / "locks").iterdir() if path.is_dir())


def pins(path):
    """The versions that a file of requirements or a lock has, by name."""
    lines = [line.partition(";")[0].partition(" --")[0].strip() for line in path.read_text().splitlines()]
    return {
        supply_chain.normal(name): version
        for name, _, version in (line.partition("==") for line in lines if "==" in line)
    }


PINNED = pins(ROOT / "constraints.txt")
REQUIRED = supply_chain.requirements()
WITHOUT_LOCK = {*supply_chain.WITHOUT_LOCK}


def locked(platform, *groups):
    found = {}
    for group in groups:
        found |= pins(platform / f"{group}.txt")
    return found


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda path: path.name)
def test_a_lock_has_a_hash_for_every_file_and_the_pinned_versions(platform):
    assert {path.stem for path in platform.iterdir()} == {*supply_chain.EXTRAS, *supply_chain.SIDES}
    for path in platform.iterdir():
        for line in path.read_text().splitlines():
            assert line.startswith("#") or re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line), line
        assert not {"torch", "rankformer"} & pins(path).keys()
    assert locked(platform, *supply_chain.EXTRAS).items() <= PINNED.items()


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda path: path.name)
def test_whatever_is_required_is_in_the_lock_of_its_environment(platform):
    """Whoever adds a requirement runs `python tools/supply_chain.py lock`."""
    for group in supply_chain.EXTRAS:
        wanted = {name for name, groups in REQUIRED.items() if {"core", group} & {*groups}}
        absent = wanted - WITHOUT_LOCK - locked(platform, "dev", group).keys()
        assert absent <= _not_for(platform, absent), group
    for side in supply_chain.SIDES:
        wanted = pins(ROOT / "tests" / side / "requirements.txt")
        absent = wanted.keys() - locked(platform, side).keys()
        assert absent <= _not_for(platform, absent), side
        assert locked(platform, side).items() <= wanted.items()


def _not_for(platform, names):
    """Those of the names that pyproject.toml or the requirements leave out for some versions of Python."""
    texts = [ROOT / "pyproject.toml", *ROOT.glob("tests/*/requirements.txt")]
    marked = [line for text in texts for line in text.read_text().splitlines() if "python_version <" in line]
    number = platform.name.rpartition("cp3")[2]
    return {
        name
        for name in names
        for line in marked
        if supply_chain.normal(line.strip(' "').partition("=")[0].partition(">")[0]) == name
        and int(number) >= int(re.search(r"python_version < .3\.(\d+)", line)[1])
    }


def test_everything_that_is_locked_or_required_is_in_the_bill_of_materials_and_the_licences():
    stored = json.loads(supply_chain.SBOM.read_text())
    assert (stored["bomFormat"], stored["specVersion"]) == ("CycloneDX", "1.6")
    named = {component["name"]: component for component in stored["components"]}
    assert REQUIRED.keys() <= named.keys(), "run: python tools/supply_chain.py lock"
    table = supply_chain.LICENCES.read_text()
    platform = ROOT / "locks" / "linux-x86_64-cp311"
    versions = locked(platform, *supply_chain.SIDES) | locked(platform, *supply_chain.EXTRAS)
    assert {name: each["version"] for name, each in named.items() if name not in WITHOUT_LOCK} == versions
    assert named["torch"]["version"] == PINNED["torch"]
    hashes = {each["hashes"][0]["content"] for name, each in named.items() if name not in WITHOUT_LOCK}
    assert all(any(digest in path.read_text() for path in platform.iterdir()) for digest in hashes)
    for name, component in named.items():
        assert f"| {name} | {component['version']} |" in table
    for name, groups in REQUIRED.items():
        assert (
            named[name]["licenses"][0]["license"]["name"] != "not stated" or name == "pgserver"
        )  # its metadata has none
        row = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
        assert row.endswith(f"| {', '.join(groups)} |"), "run: python tools/supply_chain.py lock"
    references = {component["bom-ref"] for component in stored["components"]} | {"rankformer"}
    assert all({entry["ref"], *entry["dependsOn"]} <= references for entry in stored["dependencies"])


def test_the_environment_that_runs_this_is_the_locked_one():
    """What the resolver added beyond a lock would have come without its hash."""
    if not supply_chain.lock_path("dev").exists():
        pytest.skip(f"there is no lock for {supply_chain.platform()}")
    code = "from importlib.metadata import *; print(*(d.name + '==' + d.version for d in distributions()))"
    flags = [sys.executable, "-I", "-c", code]
    found = dict(each.split("==") for each in subprocess.run(flags, capture_output=True, text=True).stdout.split())
    installed = {supply_chain.normal(name): version for name, version in found.items()}
    files = locked(supply_chain.lock_path("dev").parent, "dev")
    different = {name: installed[name] for name in files.keys() & installed.keys() if installed[name] != files[name]}
    assert different == {}


def test_a_file_with_another_hash_is_refused(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(supply_chain, "ROOT", tmp_path)
    monkeypatch.delenv("RANKFORMER_LOCK", raising=False)
    path = supply_chain.lock_path("dev")
    assert supply_chain._held("dev") is None
    assert "pinned versions without hashes" in capfd.readouterr().out
    wheel = tmp_path / "nothing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"not the file that was locked")
    path.parent.mkdir(parents=True)
    path.write_text(f"nothing @ {wheel.as_uri()} --hash=sha256:{'0' * 64}\n")
    assert supply_chain._held("dev") == 1
    error = capfd.readouterr().err
    assert "DO NOT MATCH THE HASHES" in error
    assert "RANKFORMER_LOCK=0" in error


def test_floors_are_the_lower_bounds_and_below_the_pins():
    floors = dict(line.replace("[binary]", "").split("==") for line in supply_chain.floors())
    assert floors["torch"] == PINNED["torch"]
    for name, floor in floors.items():
        numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (floor, PINNED[name])]
        assert numbers[0] <= numbers[1], name
