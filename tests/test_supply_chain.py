"""Locks, floors and the bill of materials agree with pyproject.toml and constraints.txt."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("supply_chain", ROOT / "tools" / "supply_chain.py")
supply_chain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(supply_chain)
PINNED = {
    supply_chain.normal(line.partition("==")[0]): line.partition("==")[2]
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if "==" in line
}


@pytest.mark.parametrize("lock", sorted((ROOT / "locks").glob("*.txt")), ids=lambda path: path.stem)
def test_a_lock_has_the_pinned_versions_and_a_hash_for_each(lock):
    lines = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
    for line in lines:
        name, version = re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups()
        assert PINNED[name] == version, line
    locked = {line.partition("==")[0] for line in lines}
    assert not {"torch", "rankformer"} & locked
    assert {"numpy", "pyarrow", "pydantic", "safetensors", "fastapi"} <= locked


def test_every_direct_requirement_is_in_the_bill_of_materials_and_the_licences():
    stored = json.loads(supply_chain.SBOM.read_text())
    assert (stored["bomFormat"], stored["specVersion"]) == ("CycloneDX", "1.6")
    named = {component["name"]: component for component in stored["components"]}
    table = supply_chain.LICENCES.read_text()
    for name in (*supply_chain.groups("core"), *supply_chain.groups("serve"), *supply_chain.groups("sql")):
        found = named[name]["version"]
        assert found.partition("+")[0] == PINNED[name], name  # torch adds its build: 2.13.0+cpu
        assert named[name]["licenses"][0]["license"]["name"] != "not stated"
        assert f"| {name} | {found} |" in table
    references = {component["bom-ref"] for component in stored["components"]} | {"rankformer"}
    assert all({entry["ref"], *entry["dependsOn"]} <= references for entry in stored["dependencies"])


def test_floors_are_the_lower_bounds_and_below_the_pins():
    floors = dict(line.replace("[binary]", "").split("==") for line in supply_chain.floors())
    assert floors["torch"] == PINNED["torch"]
    for name, floor in floors.items():
        numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (floor, PINNED[name])]
        assert numbers[0] <= numbers[1], name
