"""JSON answers and JSON errors: one shape for every error, without paths, tracebacks or long echoes."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rankformer.errors import FilterError, NotSupportedError, UserError

_SHOWN = 80  # characters of a caller's text that an answer repeats
_ID_TYPES = ("str", "int", "float", "bool")  # how pydantic names the branches of an id's type
_CODES = {404: "not_found", 405: "method_not_allowed"}
_MESSAGES = {  # by pydantic's type of error, where its own message is not plain
    "too_long": "at most {max_length} entries are allowed; found {actual_length}",
    "less_than_equal": "at most {le} entries may be asked for",
}


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that no cache keeps; `document` may be JSON already, as bytes."""
    content = document if isinstance(document, bytes) else json_bytes(document)
    return Response(content, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def json_bytes(document: Any) -> bytes:
    """Return a document as UTF-8 JSON; NaN and infinity become null."""
    return to_json(document, inf_nan_mode="null")


def long_json_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the same as `json_bytes`, entry by entry of its lists and iterators: other threads get their turn."""
    fields = []
    for name, value in document.items():
        is_long = isinstance(value, list | Iterator)
        content = b"[%s]" % b",".join(map(json_bytes, value)) if is_long else json_bytes(value)
        fields.append(json_bytes(name) + b":" + content)
    return b"{%s}" % b",".join(fields)


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": {"code": self.code, "message": self.message}}

    def response(self) -> Response:
        """Return the answer."""
        return json_response(self.to_dict(), self.status, self.headers)


def invalid(message: str) -> ApiError:
    """Return the error for a request with a wrong field."""
    return ApiError(422, "invalid_request", message)


def unknown(kind: str, raw_id: object) -> ApiError:
    """Return the error for a user or item that the model does not know."""
    return ApiError(404, f"unknown_{kind}", f"the model knows no {kind} {shortened(raw_id)}")


def shortened(value: object) -> str:
    """Return a caller's value as short printable text."""
    return _cut(ascii(value) if not isinstance(value, str) or not value.isprintable() else f"'{value}'")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def from_validation(error: ValidationError) -> ApiError:
    """Return the first error that pydantic found, without the caller's input."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "invalid_json", "the body is not JSON that can be read")
    field = ".".join(_cut(str(step)) for step in first["loc"] if step not in _ID_TYPES)
    field = field if field.isprintable() else ascii(field)
    if len(first["loc"]) > 1 and first["loc"][-1] in _ID_TYPES:
        message = "an id is a string, a finite number, true or false"
    elif first["type"] in _MESSAGES:
        message = _MESSAGES[first["type"]].format(**first["ctx"])
    else:
        message = first["msg"][:200]
    return invalid(f"{field}: {message}" if field else message)


def from_exception(error: BaseException) -> ApiError:
    """Return the answer to an exception; an unexpected one says nothing about itself."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "http_error")
        return ApiError(error.status_code, code, HTTPStatus(error.status_code).phrase.lower(), error.headers)
    if isinstance(error, NotSupportedError):
        return ApiError(501, "not_supported", str(error))
    if isinstance(error, FilterError):
        return invalid(str(error))
    if isinstance(error, UserError):
        return invalid("the request asks for something this model cannot do")
    return ApiError(500, "internal_error", "something went wrong here; the log of the service has more")
