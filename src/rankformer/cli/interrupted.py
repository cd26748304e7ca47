"""`Interrupted`: the user stopped a command that can be taken up again."""


class Interrupted(Exception):
    """Stopped by Ctrl-C; the message says how to go on. Exit code 130."""
