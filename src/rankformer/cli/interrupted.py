"""`Interrupted`: the user stopped a command that can be continued."""


class Interrupted(Exception):
    """Stopped by Ctrl-C; the message says how to continue. Exit code 130."""
