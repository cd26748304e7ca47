"""What went wrong with a request, and how it is said: one JSON shape, no path, no traceback, no long echo."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from rankformer.errors import NotSupportedError, UnknownIdError, UserError
from rankformer.serving.json_text import JsonResponse

_SHOWN = 80  # characters of a caller's text that an answer repeats
_ID_TYPES = ("str", "int", "float", "bool")  # how pydantic names the branches of an id's type
_CODES = {404: "not_found", 405: "method_not_allowed"}


class Problem(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": {"code": self.code, "message": self.message}}

    def response(self) -> JsonResponse:
        """Return the answer."""
        return JsonResponse(self.to_dict(), self.status, self.headers)


def invalid(message: str) -> Problem:
    """Return the answer to a request whose fields are wrong."""
    return Problem(422, "invalid_request", message)


def unknown(kind: str, raw_id: object) -> Problem:
    """Return the answer to a request for a user or item that the model does not know."""
    return Problem(404, f"unknown_{kind}", f"the model knows no {kind} {shortened(raw_id)}")


def turned_away(status: int, code: str, message: str, retry_after: int) -> Problem:
    """Return the answer to a request that may be repeated a little later."""
    return Problem(status, code, message, {"Retry-After": str(retry_after)})


def shortened(value: object) -> str:
    """Return a caller's value as a short printable text."""
    text = ascii(value) if not isinstance(value, str) or not value.isprintable() else f"'{value}'"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def from_validation(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """Return the answer to what pydantic found, the first finding only and without the caller's input."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return Problem(400, "invalid_json", "the body is not JSON that can be read")
    steps = [str(step) for step in first["loc"] if step not in _ID_TYPES]
    place = ".".join(step if len(step) <= _SHOWN else f"{step[:_SHOWN]}..." for step in steps)
    place = place if place.isprintable() else ascii(place)
    of_union = len(first["loc"]) > 1 and first["loc"][-1] in _ID_TYPES
    message = "an id is a text, a finite number, true or false" if of_union else first["msg"][:200]
    return invalid(f"{place}: {message}" if place else message)


def from_exception(error: BaseException) -> Problem:
    """Return the answer to an exception; one that nobody foresaw says nothing about itself."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "http_error")
        return Problem(error.status_code, code, HTTPStatus(error.status_code).phrase.lower(), error.headers)
    if isinstance(error, NotSupportedError):
        return Problem(501, "not_supported", str(error))
    if isinstance(error, UnknownIdError):
        return Problem(404, "unknown_item", "the model knows none of these items")
    if isinstance(error, UserError):
        return invalid("the request asks for something this model cannot do")
    return Problem(500, "internal_error", "something went wrong here; the log of the service has more")
