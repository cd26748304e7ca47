"""The page at `/`: one self-contained document, put together once from the files in `page/`.

It sends requests to its own service only. Its policy lets run exactly one script and one style, each named by its
hash, so markup in a title could not run even if the script put it into the page, which it never does.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from starlette.responses import Response

# In the order they are joined; each uses only names of those before it while it loads.
SCRIPTS = (
    *("dom.js", "api.js", "states.js", "combobox.js", "lists.js", "reasons.js", "curve.js", "model-card.js"),
    *("route.js", "users.js", "fields.js", "app.js"),
)


@cache
def page_response() -> Response:
    """Return the page with headers that keep it to itself; no model is needed to answer."""
    document, style = _read("index.html"), _read("style.css")
    script = '"use strict";\n' + "\n".join(_read(name) for name in SCRIPTS)
    for marker, text in (("/*STYLE*/", style), ("/*SCRIPT*/", script)):
        before, found, after = document.partition(marker)
        assert found, f"index.html has no {marker}"
        document = before + text + after
    policy = {
        "default-src": "'none'",
        "connect-src": "'self'",
        "script-src": _hash_of(script),
        "style-src": _hash_of(style),
        "img-src": "data:",  # the icon
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        # No text can be turned into markup or code at all: innerHTML and its kin refuse.
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    return Response(document, media_type="text/html", headers=headers)


def _read(name: str) -> str:
    return files("rankformer.serving").joinpath("page", name).read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
