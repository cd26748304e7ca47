"""Real servers one after another: `python -m tests.serving.forking RUN JOURNAL` forks one for each port on stdin."""

import os
import sys
from pathlib import Path

from rankformer.serving.server import serve
from rankformer.serving.settings import ServiceSettings, Tokens

if __name__ == "__main__":
    run, journal = map(Path, sys.argv[1:])
    for line in sys.stdin:
        child = os.fork()  # what takes a second, the imports, is done
        if child == 0:
            serve(run, port=int(line), settings=ServiceSettings(journal=journal), tokens=Tokens(), threads=1)
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
