"""`python -m rankformer`: the command line."""

import sys

from rankformer.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
