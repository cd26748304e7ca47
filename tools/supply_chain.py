"""What is installed, from where and under which licence: `python tools/supply_chain.py COMMAND`.

lock       write locks/PLATFORM/*.txt, the hash of every file that pip chooses here for what CI installs, and from the
           same answers of pip sbom.json (CycloneDX) and docs/licences.md
install    install this project with an extra; each file is held to its hash where there is a lock of this platform
side       install tests/NAME/requirements.txt, held in the same way
floors     print the lowest versions that pyproject.toml allows, for `pip install -r`; tests/smoke.py tries them

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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SBOM, LICENCES = ROOT / "sbom.json", ROOT / "docs" / "licences.md"
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
CONSTRAINED = ["-c", str(ROOT / "constraints.txt")]
WITHOUT_LOCK = ("torch",)
EXTRAS = ("dev", "docs", "bench")  # that the Makefile installs, the first always
SIDES = tuple(sorted(path.parent.name for path in ROOT.glob("tests/*/requirements.txt")))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Found = dict[str, Any]  # what pip says of a file: its metadata and its hash


def platform() -> str:
    """Return the platform and Python that a lock is for, such as linux-x86_64-cp311."""
    return f"{sysconfig.get_platform()}-cp{sys.version_info.major}{sys.version_info.minor}"


def lock_path(group: str) -> Path:
    """Return where the lock of an extra or a side environment is for this platform, or would be."""
    return ROOT / "locks" / platform() / f"{group}.txt"


def normal(name: str) -> str:
    """Return the one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock() -> None:
    """Write the locks of this platform, and the inventory from those of all."""
    main: dict[str, Found] = {}
    others: dict[str, Found] = {}
    for extra in EXTRAS:
        found = _resolved([*CONSTRAINED, "-e", f"{ROOT}[{EXTRAS[0]},{extra}]"])
        _write_lock(extra, {name: each for name, each in found.items() if name not in main})
        main |= found
    for side in SIDES:
        found = _resolved(["--no-deps", "-r", str(_requirements_of(side))])
        _write_lock(side, found)
        others |= found
    inventory({**others, **main})


def _resolved(arguments: list[str]) -> dict[str, Found]:
    """Return what pip would install, by name; this project is not among it."""
    report = ["--dry-run", "--ignore-installed", "--report", "-", *arguments]
    done = subprocess.run([*PIP, *report], stdout=subprocess.PIPE, text=True, check=True)
    found = {normal(each["metadata"]["name"]): each for each in json.loads(done.stdout)["install"]}
    return {name: each for name, each in sorted(found.items()) if name != "rankformer"}


def _write_lock(group: str, found: dict[str, Found]) -> None:
    lines = [f"# Written by tools/supply_chain.py lock for {platform()}; torch is held by constraints.txt."]
    lines += [
        f"{name}=={each['metadata']['version']} --hash=sha256:{_hash(each)}"
        for name, each in found.items()
        if name not in WITHOUT_LOCK
    ]
    lock_path(group).parent.mkdir(parents=True, exist_ok=True)
    lock_path(group).write_text("\n".join(lines) + "\n")


def _hash(found: Found) -> str:
    return str(found["download_info"]["archive_info"]["hashes"]["sha256"])


def install(extra: str) -> int:
    """Install the project with an extra such as dev; return the exit code."""
    code = _held(extra)
    if code is None:
        return subprocess.call([*PIP, *CONSTRAINED, "-e", f"{ROOT}[{extra}]"])
    # setuptools builds the project; it is in the lock too, where a build of its own would fetch any.
    return code or subprocess.call([*PIP, "--no-build-isolation", *CONSTRAINED, "-e", f"{ROOT}[{extra}]"])


def side(name: str) -> int:
    """Install what tests/NAME needs, as listed; return the exit code."""
    code = _held(name)
    return subprocess.call([*PIP, "--no-compile", "--no-deps", "-r", _requirements_of(name)]) if code is None else code


def _held(group: str) -> int | None:
    """Install the files of a lock and return the exit code; None where there is none, or it is not wanted."""
    path = lock_path(group)
    if os.environ.get("RANKFORMER_LOCK", "1") == "0" or not path.exists():
        print(f"{group}: pinned versions without hashes ({path.relative_to(ROOT)} is not there or not wanted)")
        return None
    code = subprocess.call([*PIP, "--no-compile", "--require-hashes", "--no-deps", "-r", str(path)])
    if code:
        print(f"a file is not the one that {path.relative_to(ROOT)} names (or pip failed, see above); "
              "RANKFORMER_LOCK=0 installs the same versions without hashes", file=sys.stderr)  # fmt: skip
    return code


def _requirements_of(side: str) -> Path:
    return ROOT / "tests" / side / "requirements.txt"


def inventory(packages: dict[str, Found]) -> None:
    """Write the bill of materials and the table of licences."""
    packages = dict(sorted(packages.items()))
    SBOM.write_text(json.dumps(sbom(packages), indent=1) + "\n")
    direct = requirements()
    rows = [
        f"| {name} | {_version(found)} | {licence(found['metadata'])} | {', '.join(direct.get(name, ['indirect']))} |"
        for name, found in packages.items()
    ]
    LICENCES.write_text(
        "# Licences of what is installed\n\nrankformer itself is Apache-2.0. Written by `python tools/supply_chain.py "
        f"lock` from the metadata of the packages, on {platform()}; the bill of materials in CycloneDX "
        "is [sbom.json](../sbom.json). \"needed by\" names the extra; core is every installation, indirect is what "
        "these need, or what a test does.\n\n"
        "| package | version | licence | needed by |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )  # fmt: skip


def sbom(packages: dict[str, Found]) -> dict[str, Any]:
    """Return packages as a CycloneDX 1.6 document."""
    refs = {name: f"pkg:pypi/{name}@{_version(found)}" for name, found in packages.items()}
    components = [
        {
            "type": "library",
            "bom-ref": refs[name],
            "name": name,
            "version": _version(found),
            "purl": refs[name],
            "licenses": [{"license": {"name": licence(found["metadata"])}}],
            **({} if name in WITHOUT_LOCK else {"hashes": [{"alg": "SHA-256", "content": _hash(found)}]}),
        }
        for name, found in packages.items()
    ]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    itself = {"type": "library", "bom-ref": "rankformer", "name": "rankformer", "version": version}
    graph = {"rankformer": sorted(refs[name] for name in requirements() if name in refs)}
    for name, found in packages.items():
        needs = [_name_of(text) for text in found["metadata"].get("requires_dist", []) if "extra ==" not in text]
        graph[refs[name]] = sorted({refs[other] for other in needs if other in refs})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**itself, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": others} for ref, others in graph.items()],
    }


def _version(found: Found) -> str:
    return str(found["metadata"]["version"]).partition("+")[0]  # torch adds its build: 2.13.0+cpu


def licence(stated: dict[str, Any]) -> str:
    """Return the licence that a package's metadata states: an expression, a short text, or its classifiers."""
    classified = [value.rpartition(" :: ")[2] for value in stated.get("classifier", []) if "License ::" in value]
    short = (stated.get("license") or "").strip().splitlines()[:1]
    plain = stated.get("license_expression") or " and ".join(classified)
    plain = plain or (short[0] if short and len(short[0]) < 60 else "")
    return plain.replace("|", "/") or "not stated"


def requirements() -> dict[str, list[str]]:
    """Return the packages that pyproject.toml names, each with the extras that do; `core` for every installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, list[str]] = {}
    for group, needs in groups.items():
        for requirement in needs:
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


def _name_of(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match, requirement
    return normal(match[0])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lock"]:
            lock()
        case ["install", extra]:
            sys.exit(install(extra))
        case ["side", name]:
            sys.exit(side(name))
        case ["floors"]:
            print("\n".join(floors()))
        case _:
            sys.exit(__doc__)
