"""Runs to export, and a real PostgreSQL with pgvector to load them into."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.runs.saved import Run, save_run
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender

USERS, ITEMS, DIMENSION = 130, 45, 8
# Everything that COPY, SQL, psql or a careless reader could trip over; the rest of the items have plain names.
ODD_TEXTS = [
    "",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\\",
    "\\\\",
    "\\N",
    "\\.",
    "\\t",
    "a\tb\nc\\d\re",
    "NULL",
    "'; DROP TABLE rankformer_items; --",
    "\\! touch owned",
    ":variable",
    "$1 %s {x}",
    '"quoted", {1,2}',
    "\x01\x0b\x0c\x1b[31m\x7f",
    "\x85\u2028\u2029",
    "é",
    "e\u0301",
    "日本\U0001f600",
    "<b>&amp;",
]


def needed(module):
    """Skip a test without an optional module, except where everything is meant to be installed."""
    if find_spec(module) is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{module} is not installed")


def odd_items():
    """Return ids with every odd text, and titles with some, one missing."""
    ids = pa.array([*ODD_TEXTS, *[f"item-{number}" for number in range(ITEMS - len(ODD_TEXTS))]])
    titles = pa.array([None, *reversed(ids.to_pylist()[1:])])
    return ids, titles


def make_run(user_ids=None, item_ids=None, titles=None, dimension=DIMENSION, dtype=torch.float32, seed=0, vectors=None):
    user_map = IdMap(pa.array(range(USERS)) if user_ids is None else user_ids)
    item_map = IdMap(pa.array([f"item-{number}" for number in range(ITEMS)]) if item_ids is None else item_ids)
    n, m = len(user_map), len(item_map)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    pairs = rng.integers(0, n, 60).astype(np.int32), rng.integers(0, m, 60).astype(np.int32)
    history = Interactions(*pairs, user_map, item_map, item_titles=titles, name="log")
    if vectors is None:
        vectors = [torch.randn(size, dimension, generator=generator, dtype=dtype) for size in (n, m)]
    recommender = Recommender(Embeddings(*vectors), user_map, item_map, history)
    settings = {"tau": 0.4, "note": "it's ☃\n\\ $$"}
    return Run("toy", settings, seed, recommender, data={"fingerprint": "f" * 64}, versions={"rankformer": "0"})


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a run made by `make_run` and returns its folder."""

    def save(**changes):
        save_run(tmp_path / "run", make_run(**changes))
        return tmp_path / "run"

    return save


@dataclass(frozen=True)
class Postgres:
    """A server that listens on a socket in its own folder."""

    folder: Path
    programs: Path

    @property
    def dsn(self):
        return f"host={self.folder} user=postgres dbname=postgres"

    def psql(self, *arguments, stdin=None):
        command = [self.programs / "psql", "--no-psqlrc", "--quiet", "--dbname", self.dsn, *arguments]
        return subprocess.run(command, stdin=stdin, capture_output=True, text=True, cwd=self.folder)


@pytest.fixture(scope="session")
def postgres():
    """Start a server in a temporary folder; it is stopped and removed in the end."""
    needed("pgserver")
    needed("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # near the root: the path of a socket may not be long
    try:
        programs, account = _programs_and_account(folder)
        data, log = folder / "data", folder / "log"
        initdb = ["initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync"]
        _run(programs, initdb, account)
        _run(programs, ["pg_ctl", "-D", data, "-w", "-l", log, "-o", f"-h '' -k {folder} -F", "start"], account)
        try:
            yield Postgres(folder, programs)
        finally:
            _run(programs, ["pg_ctl", "-D", data, "-w", "-m", "immediate", "stop"], account)
    finally:
        shutil.rmtree(folder)


def _programs_and_account(folder):
    """Return where the programs are and who runs them: PostgreSQL refuses root, so root hands over to nobody."""
    # Found, not imported: its own way with root is to create an account and open up folders all the way to /.
    installed = Path(find_spec("pgserver").origin).parent
    if os.geteuid() != 0:
        return installed / "pginstall" / "bin", {}
    import pwd

    nobody = pwd.getpwnam("nobody")
    copied = folder / "site-packages"  # nobody may not be able to reach the installed ones
    shutil.copytree(installed / "pginstall", copied / "pgserver" / "pginstall")
    libraries = installed.with_name("pgserver.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copied / "pgserver.libs")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return copied / "pgserver" / "pginstall" / "bin", account


def _run(programs, command, account):
    # Output goes to a file, since the server that pg_ctl leaves behind would hold a pipe open.
    with tempfile.TemporaryFile("w+") as output:
        name, *arguments = command
        done = subprocess.run([programs / name, *arguments], stdout=output, stderr=output, cwd=programs, **account)
        output.seek(0)
        assert done.returncode == 0, output.read()
