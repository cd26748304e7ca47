"""Ports for the servers that tests start."""

import itertools
import os
import socket
from contextlib import suppress

# A range of its own for each process that tests, below the ports that the system gives to clients.
_PORTS = itertools.count(10_000 + os.getpid() % 200 * 100)


def free_port():
    """A port that nobody takes before the server does: no other test, and no client's connection."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port := next(_PORTS)))
            return port
