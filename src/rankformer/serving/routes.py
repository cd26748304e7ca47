"""The routes: ranked lists, explanations, browsing, and operation.

A handler is a function of the service (or of the service and its `model`, which its answer then names) and of what a
request holds: the indices of a `user` and an `item` in the path, a `query`, a `body`. One with a body is a plain
function, run in a thread, since its work grows with what was sent. FastAPI describes them in
OpenAPI; only the reading is ours: an empty handler with a query takes 33 microseconds this way and 80 with FastAPI's
own reading, which also accepts a field that is given twice and parses a body into Python objects before it validates
them.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, TypeVar, get_origin
from urllib.parse import parse_qsl

from fastapi import Query, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rankformer.serving import schemas
from rankformer.serving.errors import (
    ApiError,
    from_validation,
    invalid,
    json_response,
    long_json_bytes,
    shortened,
    unknown,
)
from rankformer.serving.middleware import unescaped
from rankformer.serving.model import ServedModel
from rankformer.serving.page import page_response
from rankformer.serving.service import Service

_MAX_QUERY_FIELDS = 4096
_MEANINGS = {
    400: "The body is not JSON that can be read, or is nested too deeply",
    401: "The token is missing or wrong",
    403: "The service was started without an admin token",
    404: "The model does not know the id",
    408: "The body did not arrive in time",
    409: "The run could not be loaded, or one is being loaded; the previous model continues",
    507: "The journal is full; nothing of the request was taken",
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

Document = dict[str, Any]
Handler = TypeVar("Handler", bound=Callable[..., Any])

_routes: list[tuple[Callable[..., Any], str, str, Document]] = []


def _route(
    method: str, path: str, tag: str, summary: str, answer: type[BaseModel] | None, *errors: int, **options: Any
) -> Callable[[Handler], Handler]:
    """Register the handler that follows, with how OpenAPI describes it; any route may give the usual errors too."""
    statuses = sorted({*errors, *_ALWAYS, *(_WITH_BODY if method == "POST" else ())})
    responses = {status: {"model": schemas.ErrorAnswer, "description": _MEANINGS[status]} for status in statuses}
    described = {"tags": [tag], "summary": summary, "response_model": answer, "responses": responses, **options}

    def register(handler: Handler) -> Handler:
        _routes.append((handler, method, path, described))
        return handler

    return register


def api_routes(service: Service, *, needs_token: bool) -> Iterator[APIRoute]:
    """Yield every route of a service; `needs_token` says whether /v1 is described as needing one.

    Where there is a model to compare with, what has a model is also asked of that one, at /v1/compare.
    """
    prefixes = ["/v1"] if service.settings.compare is None else ["/v1", "/v1/compare"]
    for handler, method, path, described, prefix in ((*route, prefix) for route in _routes for prefix in prefixes):
        is_compared = prefix != "/v1"
        if is_compared and "model" not in inspect.signature(handler).parameters:
            continue
        answer, path = _answering(handler, service, is_compared), path.replace("/v1", prefix, 1)
        # Tokens are checked by the middleware; these only describe them.
        is_admin, is_guarded = path.startswith("/v1/admin"), path.startswith("/v1") and needs_token
        tokens = ["admin_token"] if is_admin else ["token"] if is_guarded else []
        dependencies = [Security(HTTPBearer(scheme_name=name)) for name in tokens]
        route = APIRoute(path, answer, methods=[method], dependencies=dependencies, **described)
        route.app = answer
        yield route


def _answering(handler: Callable[..., Any], service: Service, is_compared: bool) -> ASGIApp:
    """Return a handler as an ASGI application whose signature is that of a request, for FastAPI to describe."""
    parameters = dict(inspect.signature(handler).parameters)
    del parameters["service"]
    has_model = parameters.pop("model", None) is not None
    models: dict[str, type[BaseModel]] = {}
    for name, parameter in parameters.items():
        annotation: Any = str  # an id in the path
        if name in ("query", "body"):
            models[name] = schemas.with_limits(parameter.annotation, service.settings)
            annotation = Annotated[models[name], Query()] if name == "query" else models[name]
        parameters[name] = parameter.replace(annotation=annotation)

    def read_body(body: bytes) -> BaseModel:
        with _validating():
            return models["body"].model_validate_json(body)

    def from_body(body: bytes, arguments: Document, named: Document) -> bytes:
        """Return the answer to a body, in a thread: reading, look-ups and writing all grow with it."""
        arguments["body"] = read_body(body)
        return long_json_bytes({**handler(service, **arguments), **named})

    @wraps(handler)
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        arguments: Document = {}
        if "query" in models:
            with _validating():
                arguments["query"] = _read_query(models["query"], scope["query_string"])
        named: Document = {}
        if has_model:
            arguments["model"] = model = service.compared_model if is_compared else service.model
            named["model_version"] = model.version
            if model.recent is not None and model.recent.is_far_behind:
                await service.run(model.recent.catch_up)
            for kind, segment in scope["path_params"].items():
                ids, text = model.users if kind == "user" else model.items, unescaped(segment)
                if kind == "user" and getattr(arguments.get("query"), "fallback", "none") != "none":
                    indices, _ = service.split(kind, ids.find_text, [text])
                    arguments[kind] = indices[0] if indices else text
                else:
                    arguments[kind] = service.known(kind, ids.find_text, text)
        document: Any
        if "body" in models and inspect.iscoroutinefunction(handler):
            arguments["body"] = await service.run(read_body, scope["body"])
            document = {**await handler(service, **arguments), **named}
        elif "body" in models:
            document = await service.run(from_body, scope["body"], arguments, named)
        else:
            document = await handler(service, **arguments)
            document = {**document, **named} if isinstance(document, dict) else document
        response = document if isinstance(document, Response) else json_response(document)
        await response(scope, receive, send)

    answer.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return answer


@contextmanager
def _validating() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise from_validation(error) from None


def _read_query(model: type[BaseModel], query: bytes) -> BaseModel:
    """Return a query string as a model; only fields of lists may be repeated."""
    fields: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError:
        raise invalid(f"the query has more than {_MAX_QUERY_FIELDS} fields") from None
    for name, value in pairs:
        if name in model.model_fields and get_origin(model.model_fields[name].annotation) is list:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise invalid(f"{shortened(name)}: given more than once")
        else:
            fields[name] = value
    return model.model_validate(fields)


@_route("GET", "/v1/recommend/{user}", "lists", "One user", schemas.RecommendAnswer, 404, 429)
async def recommend(service: Service, model: ServedModel, user: int | str, query: schemas.RecommendQuery) -> Document:
    """The items ranked highest for a user, without those the user has.

    A user whom the model knows nothing about gets the most popular items and `"fallback": "popularity"`; with
    `fallback=none` the answer is 404.
    """
    index, name = (-1, user) if isinstance(user, str) else (user, model.users.values[user])
    added = model.added(model.users.parse(user) if isinstance(user, str) else user)
    fallback = model.fallback(index, added)
    if fallback is not None and query.fallback == "none":
        raise unknown("user", name)
    options = service.options(model.items.find_text, query)
    items = await service.users.submit((model, options), (index, added))
    return {"user_id": name, "items": items, "fallback": fallback}


@_route("POST", "/v1/recommend:batch", "lists", "Many users", schemas.BatchAnswer, 404, 429)
def recommend_batch(service: Service, model: ServedModel, body: schemas.BatchRequest) -> Document:
    """The lists of many users in one answer; whoever the model knows nothing about gets the most popular items.

    With `"fallback": "none"` they get an error in place of a list.
    """
    options = service.options(model.items.find, body)
    if len(body.users) * body.k > service.settings.max_batch_items:
        raise invalid(f"users times k may be at most {service.settings.max_batch_items}; ask in several batches")
    found = [model.users.find(user) for user in body.users]
    service.metrics.unknown_ids.labels("user").inc(found.count(None))
    rows = [-1 if index is None else index for index in found]
    adds = [
        model.added(model.users.accepted(user) if index < 0 else index)
        for user, index in zip(body.users, rows, strict=True)
    ]
    fallbacks = [model.fallback(index, added) for index, added in zip(rows, adds, strict=True)]
    has_list = [body.fallback != "none" or fallback is None for fallback in fallbacks]
    asked = [(index, added) for index, added, listed in zip(rows, adds, has_list, strict=True) if listed]
    lists = model.current_lists(asked, options)
    results: Iterator[Document] = (
        {"user_id": model.users.values[index] if index >= 0 else user, "items": next(lists), "fallback": fallback}
        if listed
        else {"user_id": user, **unknown("user", user).to_dict()}
        for user, index, fallback, listed in zip(body.users, rows, fallbacks, has_list, strict=True)
    )
    return {"results": results}


@_route("POST", "/v1/recommend:session", "lists", "A new user", schemas.SessionAnswer, 404, 429, 501)
def recommend_session(service: Service, model: ServedModel, body: schemas.SessionRequest) -> Document:
    """The list of someone who was not in the training data, from the items they have; or of a known `user` with these.

    What the model and the journal know of the user then comes before the history, and is left out of the list too.
    """
    options = service.options(model.items.find, body)
    known, missing = service.split("item", model.find_warm, body.history)
    if body.user is None:
        user, added = None, {}
    else:
        user = model.users.find(body.user)
        added = model.added(model.users.accepted(body.user) if user is None else user)
    index = -1 if user is None else user
    if not known and model.fallback(index, added) and body.fallback == "none":
        raise ApiError(404, "unknown_item", "the model knows none of these items")
    return {**model.session(known, options, index, added), "unknown_items": missing}


@_route("POST", "/v1/events", "lists", "New interactions", schemas.EventsAnswer, 429, 501, 507)
async def events(service: Service, body: schemas.EventsRequest) -> Document:
    """Appends interactions to the journal; when the answer comes they are on disk, and count in the next list.

    They are left out of the user's lists and folded in, and the next `rankformer update` learns them.
    """
    model = service.model
    if model.recent is None:
        raise ApiError(501, "not_supported", "the service was started without --journal and takes no events")
    records = await service.run(model.recent.records, body.events)
    return {"accepted": await service.events.submit(None, records), "model_version": model.version}


@_route("GET", "/v1/items/{item}/similar", "lists", "Similar items", schemas.SimilarAnswer, 404, 429, 501)
async def similar(service: Service, model: ServedModel, item: int, query: schemas.SimilarQuery) -> Document:
    """The items whose embeddings have the highest cosine with that of an item."""
    options = service.options(model.items.find_text, query)
    return {**model.titled(item), "items": await service.run(model.similar, item, options)}


@_route("GET", "/v1/explain/{user}/{item}", "reasons", "Explanation for a user", schemas.ExplainAnswer, 404, 429, 501)
async def explain(service: Service, model: ServedModel, user: int, item: int) -> Document:
    """The contribution of each item of a user's history to the score of an item, largest first."""
    added = model.added(user)
    if model.fallback(user, added) is not None and model.can["explain"]:
        message = "the model was fitted on no interaction of this user, who gets the most popular items"
        raise ApiError(404, "nothing_to_explain", message)
    warm = model.added_warm(user) if model.can["fold_in"] else []
    return await service.run(model.explain, item, user, warm or None)


@_route("POST", "/v1/explain:session", "reasons", "Explanation for a new user", schemas.ExplainAnswer, 404, 429, 501)
def explain_session(service: Service, model: ServedModel, body: schemas.ExplainSessionRequest) -> Document:
    """The contribution of each item of a new user's history to the score of an item, largest first.

    Of a known `user` they follow what the model and the journal know.
    """
    item = service.known("item", model.items.find, body.item)
    known, _ = service.split("item", model.find_warm, body.history)
    if not known and model.can["explain"]:
        raise ApiError(404, "unknown_item", "the model knows none of these items")
    if body.user is None:
        return model.explain(item, None, known)
    user = service.known("user", model.users.find, body.user)
    return model.explain(item, user, [*model.added_warm(user), *known])


@_route("GET", "/v1/users", "browsing", "Find users", schemas.UsersAnswer, 429)
async def users(service: Service, model: ServedModel, query: schemas.SearchQuery) -> Document:
    """Users whose id contains a text; without one, the first users."""
    found = await service.run(model.users.search, query.query, query.limit)
    return {"users": [{"user_id": model.users.values[user], "count": int(model.users.counts[user])} for user in found]}


@_route("GET", "/v1/users/{user}/history", "browsing", "History of a user", schemas.HistoryAnswer, 404, 429)
async def history(service: Service, model: ServedModel, user: int, query: schemas.HistoryQuery) -> Document:
    """The items a user is known to have, in the order of the interaction log."""
    items = await service.run(model.history, user)
    entries = model.described(items[: query.limit])
    return {"user_id": model.users.values[user], "count": len(items), "items": entries}


@_route("GET", "/v1/items", "browsing", "Find items", schemas.ItemsAnswer, 429)
async def items(service: Service, model: ServedModel, query: schemas.SearchQuery) -> Document:
    """Items whose id or title contains a string, popular ones first."""
    found = await service.run(model.items.search, query.query, query.limit)
    entries = zip(model.described(found), found, strict=True)
    return {"items": [{**entry, "count": int(model.items.counts[item])} for entry, item in entries]}


@_route("GET", "/v1/model", "browsing", "Model card", schemas.ModelAnswer)
async def card(service: Service, model: ServedModel) -> Document:
    """What the model is, what it was trained on, and how good it is by which protocol."""
    other = service.compared
    return model.model_card if other is None else {**model.model_card, "compared_version": other.version}


@_route("GET", "/livez", "operation", "Alive", schemas.StatusAnswer, responses=None)
async def alive(service: Service) -> Document:
    """Answers as long as the process does."""
    return {"status": "ok"}


@_route("GET", "/readyz", "operation", "Ready", schemas.StatusAnswer)
async def ready(service: Service) -> Document:
    """Answers 200 while a model is loaded, 503 while the service is starting or stopping."""
    if service.stopping:
        raise service.rejected(503, "stopping", "the service is stopping")
    return {"status": "ok", "model_version": service.model.version}


_TEXT = {"response_class": Response, "responses": {200: {"content": {"text/plain": {}}}}}


@_route("GET", "/metrics", "operation", "Prometheus", None, **_TEXT)
async def metrics(service: Service) -> Response:
    """Counters in Prometheus' text format."""
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Cache-Control": "no-store"}
    return Response(service.metrics.text(), headers=headers)


@_route("POST", "/v1/admin/reload", "operation", "Reload the model", schemas.ReloadAnswer, 403, 409)
async def reload(service: Service) -> Document:
    """Loads what the configured run path holds now; the previous model answers until the new one is loaded."""
    if service.loads.busy:
        raise ApiError(409, "reload_running", "a run is being loaded", {"Retry-After": "1"})
    previous = service.current
    try:
        version = await service.loads.submit(None)
    except Exception:  # logged where it happened, with the path that must not be shown here
        message = "the run could not be loaded and the previous model continues; see the log"
        raise ApiError(409, "reload_failed", message) from None
    return {"model_version": version, "previous_version": None if previous is None else previous.version}


@_route("GET", "/", "operation", "Page", None, include_in_schema=False)
async def page(service: Service) -> Response:
    """The page for people."""
    return page_response()
