"""Headers of a request, read from the ASGI scope without building anything."""

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> str:
    """Return the first header of that lower-case name, an empty text without one."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""
