"""What tests of every part share; among it a real PostgreSQL with pgvector."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

# Started in the background of a script, a process ignores interrupts, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A folder with a requirements.txt has an environment of its own (tools/side-environment) and is tested only in it.
collect_ignore = [
    folder.name
    for folder in (listed.parent for listed in Path(__file__).parent.glob("*/requirements.txt"))
    if Path(sys.prefix).name != f".venv-{folder.name}"
]


# Files that take minutes come first, so that no process is left with one of them at the end; those that start several
# ranks apart from each other, because ranks wait for one another.
LONG = (
    "training/test_ranks.py",
    "data/test_sql.py",
    "test_attack.py",
    "runs/test_ranks.py",
    "serving/test_page.py",
    "training/test_two_hosts.py",
    "tracking/test_guide.py",
    "tracking/test_export_guide.py",
    "adapters/test_metrics_agree.py",
)


def pytest_collection_modifyitems(items):
    def place(item):
        return next((at for at, name in enumerate(LONG) if item.path.as_posix().endswith("tests/" + name)), len(LONG))

    items.sort(key=place)


@pytest.fixture(autouse=True)
def _interrupts_are_heard():
    """What a command in this process does to interrupts ends with the test."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def one_thread():
    """One thread for graphs that are far too small to share out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def needed(module):
    """Skip a test without an optional module, except where everything is meant to be installed."""
    if find_spec(module) is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{module} is not installed")


@dataclass(frozen=True)
class Postgres:
    """A server that listens on a socket in its own folder."""

    folder: Path
    programs: Path
    password = "s3cret-word"

    @property
    def dsn(self):
        return f"host={self.folder} user=postgres dbname=postgres"

    @property
    def url(self):
        """The same as an address, with a password that the server does not ask for."""
        return f"postgresql://postgres:{self.password}@/postgres?host={self.folder}"

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
