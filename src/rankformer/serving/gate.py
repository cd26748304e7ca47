"""Who may come in: the name a caller used for us, and the token they carry; and paths whose ids may hold slashes."""

import hmac
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from rankformer.serving.headers import header
from rankformer.serving.problems import Problem
from rankformer.serving.settings import ADMIN_TOKEN_VARIABLE, ServiceSettings, Tokens, is_loopback

GUARDED = "/v1"
ADMIN = "/v1/admin"


class Gate:
    """Checks every request before it is routed."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings, tokens: Tokens) -> None:
        self.app = app
        self.tokens = tokens
        self.allowed_hosts = {name.lower() for name in settings.allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            scope["path"] = escaped_path(scope)
            if self.tokens.access is None:
                self._check_host(header(scope, b"host"))
            self._check_token(scope)
        await self.app(scope, receive, send)

    def _check_host(self, host: str) -> None:
        """Refuse foreign names: a page may let its own name point here, to read what we tell its visitor."""
        name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() else host
        if name and not is_loopback(name) and name.lower() not in self.allowed_hosts:
            raise Problem(421, "unknown_host", "this service does not answer to that name; see --allow-host")

    def _check_token(self, scope: Scope) -> None:
        path = scope["path"]
        if _is_under(path, ADMIN):
            if self.tokens.admin is None:
                raise Problem(403, "admin_disabled", f"this service was started without {ADMIN_TOKEN_VARIABLE}")
            expected = self.tokens.admin
        elif self.tokens.access is not None and _is_under(path, GUARDED):
            expected = self.tokens.access
        else:
            return
        scheme, _, given = header(scope, b"authorization").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), expected.encode())
        if not right or scheme.lower() != "bearer":
            message = "send the token as `Authorization: Bearer ...`"
            raise Problem(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


class IdConvertor(Convertor[str]):
    """One segment of an escaped path, as the text it stands for."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the text of a segment."""
        return value.replace("%2F", "/").replace("%25", "%")

    def to_string(self, value: str) -> str:
        """Return the segment of a text."""
        return _escaped(value)


register_url_convertor("id", IdConvertor())


def escaped_path(scope: Scope) -> str:
    """Return the decoded path in which a slash or percent sign that belongs to a segment stays encoded.

    Servers decode the whole path before it is routed, after which `a%2Fb` and `a/b` are the same.
    """
    raw = scope.get("raw_path")
    if raw is None:
        return str(scope["path"])
    return "/".join(_escaped(unquote(segment)) for segment in raw.decode("latin-1").split("/"))


def _escaped(segment: str) -> str:
    return segment.replace("%", "%25").replace("/", "%2F")


def _is_under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
