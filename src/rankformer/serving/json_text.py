"""JSON in and out: what leaves is always valid, what comes in is read by pydantic alone."""

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class JsonResponse(Response):
    """A JSON answer that no cache keeps."""

    media_type = "application/json"

    def __init__(self, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        content = document if isinstance(document, bytes) else json_bytes(document)
        super().__init__(content, status, {"Cache-Control": "no-store", **(headers or {})})


def json_bytes(document: Any) -> bytes:
    """Return a document as UTF-8 JSON; numbers that JSON has no word for become null."""
    try:
        text = _ENCODER.encode(document)
    except ValueError:  # rare, so looked for only here
        text = _ENCODER.encode(_finite(document))
    # Half of a surrogate pair, which JSON text may hold and UTF-8 may not, becomes the escape that means it.
    return text.encode("utf-8", "backslashreplace")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
