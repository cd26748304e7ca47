"""What is installed, from where and under which licence: `python tools/supply_chain.py COMMAND`.

lock       write locks/PLATFORM.txt: what is installed of constraints.txt, with the hash of the file for this platform
inventory  write sbom.json (CycloneDX) and docs/licences.md from what is installed
floors     print the lowest versions that pyproject.toml allows, for `pip install -r`; tests/smoke.py tries them
install    install this project with extras; each file is held to its hash where there is a lock of this platform

torch is in no lock: its builds (CPU, CUDA) differ by machine and so do their own requirements; constraints.txt holds
its version. Elsewhere the versions of constraints.txt hold without hashes; RANKFORMER_LOCK=0 asks for that.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SBOM, LICENCES = ROOT / "sbom.json", ROOT / "docs" / "licences.md"
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
CONSTRAINED = ["-c", str(ROOT / "constraints.txt")]
WITHOUT_LOCK = ("torch",)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def platform() -> str:
    """Return the platform and Python that a lock is for, such as linux-x86_64-cp311."""
    return f"{sysconfig.get_platform()}-cp{sys.version_info.major}{sys.version_info.minor}"


def lock_path() -> Path:
    """Return where the lock of this platform is, or would be."""
    return ROOT / "locks" / f"{platform()}.txt"


def normal(name: str) -> str:
    """Return the one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock() -> None:
    """Write the hash of the file that pip chooses here for each installed package of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normal(line.partition("==")[0]): line for line in lines if "==" in line}
    installed = {normal(found.metadata["Name"]) for found in metadata.distributions()}
    wanted = [pinned[name] for name in sorted(pinned) if name in installed and name not in WITHOUT_LOCK]
    report = ["--dry-run", "--ignore-installed", "--no-deps", "--report", "-", *wanted]
    done = subprocess.run([*PIP, *report], stdout=subprocess.PIPE, text=True, check=True)
    lines = []
    for found in json.loads(done.stdout)["install"]:
        name, version = normal(found["metadata"]["name"]), found["metadata"]["version"]
        digest = found["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    head = f"# Written by tools/supply_chain.py lock for {platform()}; torch is held by constraints.txt.\n"
    lock_path().parent.mkdir(exist_ok=True)
    lock_path().write_text(head + "\n".join(sorted(lines)) + "\n")


def install(extras: str) -> int:
    """Install the project with extras such as dev; return the exit code."""
    if lock_path().exists() and os.environ.get("RANKFORMER_LOCK", "1") != "0":
        code = subprocess.call([*PIP, "--require-hashes", "--no-deps", "-r", str(lock_path())])
        if code:
            name = lock_path().relative_to(ROOT)
            print(f"a file is not the one that {name} names (or pip failed, see above); RANKFORMER_LOCK=0 installs "
                  "the same versions without hashes", file=sys.stderr)  # fmt: skip
            return code
    return subprocess.call([*PIP, *CONSTRAINED, "-e", f"{ROOT}[{extras}]"])


def inventory() -> None:
    """Write the bill of materials and the table of licences."""
    packages = _packages()
    SBOM.write_text(json.dumps(sbom(packages), indent=1) + "\n")
    direct = _direct()
    rows = [
        f"| {name} | {found.version} | {licence(found)} | {', '.join(direct.get(name, ())) or 'indirect'} |"
        for name, found in packages.items()
    ]
    LICENCES.write_text(
        "# Licences of what is installed\n\nrankformer itself is Apache-2.0. Written by `python tools/supply_chain.py "
        f"inventory` from the metadata of the installed packages, on {platform()}; the bill of materials in CycloneDX "
        "is [sbom.json](../sbom.json). \"needed by\" names the extra; core is every installation.\n\n"
        "| package | version | licence | needed by |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )  # fmt: skip


def sbom(packages: dict[str, metadata.Distribution]) -> dict[str, Any]:
    """Return packages as a CycloneDX 1.6 document."""
    hashes = locked_hashes()
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{found.version}",
            "name": name,
            "version": found.version,
            "purl": f"pkg:pypi/{name}@{found.version}",
            "licenses": [{"license": {"name": licence(found)}}],
            **({"hashes": [{"alg": "SHA-256", "content": hashes[name]}]} if name in hashes else {}),
        }
        for name, found in packages.items()
    ]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    itself = {"type": "library", "bom-ref": "rankformer", "name": "rankformer", "version": version}
    refs = {component["name"]: component["bom-ref"] for component in components}
    needs = {
        refs[name]: sorted({refs[other] for other in _requirements(found) if other in refs})
        for name, found in packages.items()
    }
    graph = {"rankformer": sorted(refs[name] for name in _direct() if name in refs), **needs}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**itself, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": others} for ref, others in graph.items()],
    }


def locked_hashes() -> dict[str, str]:
    """Return the hash of each package in this platform's lock."""
    lines = lock_path().read_text().splitlines() if lock_path().exists() else []
    return {line.partition("==")[0]: line.rpartition("sha256:")[2] for line in lines if "--hash" in line}


def licence(found: metadata.Distribution) -> str:
    """Return the licence that a package states: an expression, a short text, or its classifiers."""
    stated = found.metadata.get("License-Expression") or ""
    classified = [
        value.rpartition(" :: ")[2] for value in found.metadata.get_all("Classifier", []) if "License ::" in value
    ]
    short = (found.metadata.get("License") or "").strip().splitlines()[:1]
    plain = stated or " and ".join(classified) or (short[0] if short and len(short[0]) < 60 else "")
    return plain.replace("|", "/") or "not stated"


def groups(group: str) -> list[str]:
    """Return the packages that one extra names, or `core`."""
    return [name for name, extras in _direct().items() if group in extras]


def _direct() -> dict[str, list[str]]:
    """Return the packages that pyproject.toml names, each with the extras that do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, list[str]] = {}
    for group, requirements in groups.items():
        for requirement in requirements:
            found.setdefault(_name_of(requirement), []).append(group)
    return found


def floors() -> list[str]:
    """Return what every user installs and the extras for use, each at its lowest version; torch as it is pinned."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(each for name in ("serve", "plots", "tune", "sql", "faiss") for each in extras[name]),
    ]
    pinned = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    return sorted({pinned, *(each.replace(">=", "==") for each in wanted if _name_of(each) not in WITHOUT_LOCK)})


def _packages() -> dict[str, metadata.Distribution]:
    """Return the installed packages that this project needs, directly or not, by name."""
    installed = {normal(found.metadata["Name"]): found for found in metadata.distributions()}
    waiting, needed = list(_direct()), set[str]()
    while waiting:
        name = waiting.pop()
        if name in installed and name not in needed:
            needed.add(name)
            waiting += _requirements(installed[name])
    return {name: installed[name] for name in sorted(needed)}


def _requirements(found: metadata.Distribution) -> list[str]:
    return [_name_of(text) for text in found.requires or [] if "extra ==" not in text] + (
        ["psycopg-binary"] if found.metadata["Name"] == "psycopg" else []
    )


def _name_of(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match, requirement
    return normal(match[0])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lock"]:
            lock()
        case ["inventory"]:
            inventory()
        case ["floors"]:
            print("\n".join(floors()))
        case ["install", extras]:
            sys.exit(install(extras))
        case _:
            sys.exit(__doc__)
