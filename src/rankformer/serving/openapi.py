"""The description of the interface at /openapi.json: bodies, errors, limits and tokens, as they are in this service."""

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI

from rankformer.serving.answers import ErrorAnswer
from rankformer.serving.requests import QueryString, RequestBody
from rankformer.serving.settings import ServiceSettings, Tokens

_MEANINGS = {
    400: "The body is not JSON that can be read, or is nested too deeply",
    401: "The token is missing or wrong",
    403: "The service was started without an admin token",
    404: "The model does not know the id",
    408: "The body did not arrive in time",
    409: "The run could not be loaded, or one is being loaded; the model before goes on",
    413: "The body is too large",
    415: "The body is not application/json",
    421: "The service does not answer to the name it was called by",
    422: "A field is wrong",
    429: "Too many requests wait; try again after Retry-After seconds",
    500: "Something went wrong in the service",
    501: "The method of this model cannot do that",
    503: "The service is starting, stopping or overloaded; try again after Retry-After seconds",
}
_ALWAYS = (401, 421, 422, 500, 503)
_WITH_BODY = (400, 408, 413, 415)


def errors(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """Return the description of the errors a route may answer with, besides those that any may."""
    every = sorted({*_ALWAYS, *statuses, *(_WITH_BODY if body else ())})
    return {status: {"model": ErrorAnswer, "description": _MEANINGS[status]} for status in every}


def body_of(request: type[RequestBody]) -> dict[str, Any]:
    """Return the description of a JSON body, which the route reads by itself."""
    schema = request.model_json_schema()
    example = schema.pop("example")
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def query_of(request: type[QueryString]) -> dict[str, Any]:
    """Return the description of a query, which the route reads by itself."""
    return {"parameters": [_parameter(*field) for field in request.model_json_schema()["properties"].items()]}


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {"name": name, "in": "query", "required": False, "description": schema.pop("description")}
    # A query cannot say null: what may be absent is described by what it is when present.
    present = [branch for branch in schema.get("anyOf", ()) if branch.get("type") != "null"]
    return {**described, "schema": present[0] if present else schema}


def describe(app: FastAPI, settings: ServiceSettings, tokens: Tokens) -> Callable[[], dict[str, Any]]:
    """Return the function that gives the application's description, made once."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            for schema in _named_schemas(document):
                _set_limits(schema, settings)
            _set_tokens(document, tokens)
            app.openapi_schema = document
        return app.openapi_schema

    return openapi


def _named_schemas(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, schema) of every parameter of the document and every property of its request bodies."""
    for operations in value["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                yield parameter["name"], parameter["schema"]
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield from content["schema"]["properties"].items()


def _set_limits(named: tuple[str, dict[str, Any]], settings: ServiceSettings) -> None:
    name, schema = named
    largest = {"k": settings.max_k, "limit": settings.max_listed}
    longest = {
        "users": settings.max_users,
        "history": settings.max_history,
        "allow": settings.max_filter,
        "block": settings.max_filter,
    }
    if name in largest:
        schema["maximum"] = largest[name]
    for branch in (schema, *schema.get("anyOf", ())):
        if name in longest and branch.get("type") == "array":
            branch["maxItems"] = longest[name]


def _set_tokens(document: dict[str, Any], tokens: Tokens) -> None:
    bearer = {"type": "http", "scheme": "bearer"}
    document.setdefault("components", {})["securitySchemes"] = {"token": bearer, "admin_token": bearer}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/v1/admin/"):
                operation["security"] = [{"admin_token": []}]
            elif path.startswith("/v1/") and tokens.access is not None:
                operation["security"] = [{"token": []}]
