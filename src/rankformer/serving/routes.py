"""The routes: ranked lists, explanations, browsing, and operation."""

from typing import Any

from fastapi import APIRouter, FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.responses import Response

from rankformer.scoring.recommender import RankingOptions
from rankformer.serving import schemas
from rankformer.serving.errors import ApiError, invalid, json_bytes, unknown
from rankformer.serving.model import ServedModel
from rankformer.serving.page import page_response
from rankformer.serving.routing import described, model_route
from rankformer.serving.service import Service

Document = dict[str, Any]


def add_routes(app: FastAPI, service: Service, *, needs_token: bool) -> None:
    """Add every route to the application; `needs_token` says whether /v1 is described as needing one."""
    route_class = model_route(service.settings)
    # Tokens are checked by AuthMiddleware; these only describe them.
    token = [Security(HTTPBearer(scheme_name="token"))] if needs_token else []
    admin_token = [Security(HTTPBearer(scheme_name="admin_token"))]
    for tag, add in (("lists", _add_lists), ("reasons", _add_explanations), ("browsing", _add_browsing)):
        router = APIRouter(prefix="/v1", tags=[tag], dependencies=token, route_class=route_class)
        add(router, service)
        app.include_router(router)
    router = APIRouter(tags=["operation"], route_class=route_class)
    _add_operation(router, service, admin_token)
    app.include_router(router)


def _add_lists(router: APIRouter, service: Service) -> None:
    @router.get("/recommend/{user:id}", **described("One user", schemas.RecommendAnswer, 404, 429))
    async def recommend(user: str, query: schemas.RecommendQuery) -> Document:
        """The items ranked highest for a user of the training data, without those the user has."""
        model = service.model
        index = service.known("user", model.users.find_text, user)
        # A query cannot hold an empty list: none is no filter.
        allow, block = query.allow or None, query.block or None
        options = service.options(model.items.find_text, query.k, query.include_seen, allow, block)
        items = await service.list_of(model, index, options)
        return {"user_id": model.users.values[index], "items": items, "model_version": model.version}

    @router.post("/recommend:batch", **described("Many users", schemas.BatchAnswer, 404, 429, body=True))
    async def recommend_batch(body: schemas.BatchRequest) -> bytes:
        """The lists of many users in one answer; a user that is not known gets an error in place of a list."""
        model = service.model
        options = service.options(model.items.find, body.k, body.include_seen, body.allow, body.block)
        if len(body.users) * body.k > service.settings.max_batch_items:
            raise invalid(f"users times k may be at most {service.settings.max_batch_items}; ask in several batches")
        found = [model.users.find(user) for user in body.users]
        service.metrics.unknown_ids.labels("user").inc(found.count(None))
        return await service.run(_batch, model, body.users, found, options)

    @router.post("/recommend:session", **described("A new user", schemas.SessionAnswer, 404, 429, 501, body=True))
    async def recommend_session(body: schemas.SessionRequest) -> Document:
        """The list of someone who was not in the training data, from the items they have."""
        model = service.model
        options = service.options(model.items.find, body.k, body.include_seen, body.allow, body.block)
        known, missing = service.split("item", model.items.find, body.history)
        answer = await service.run(model.session, known, options)
        return {**answer, "unknown_items": missing, "model_version": model.version}

    @router.get("/items/{item:id}/similar", **described("Similar items", schemas.SimilarAnswer, 404, 429, 501))
    async def similar(item: str, query: schemas.SimilarQuery) -> Document:
        """The items whose embeddings have the highest cosine with that of an item."""
        model = service.model
        index = service.known("item", model.items.find_text, item)
        items = await service.run(model.similar, index, query.k)
        return {**model.titled(index), "items": items, "model_version": model.version}


def _batch(model: ServedModel, users: list[Any], found: list[int | None], options: RankingOptions) -> bytes:
    """Return the whole answer as JSON: writing it can take longer than ranking, and is done in this thread too."""
    lists = iter(model.lists([index for index in found if index is not None], options))
    results: list[Document] = [
        {"user_id": user, **unknown("user", user).to_dict()}
        if index is None
        else {"user_id": model.users.values[index], "items": next(lists)}
        for user, index in zip(users, found, strict=True)
    ]
    return json_bytes({"results": results, "model_version": model.version})


def _add_explanations(router: APIRouter, service: Service) -> None:
    @router.get(
        "/explain/{user:id}/{item:id}", **described("Explanation for a user", schemas.ExplainAnswer, 404, 429, 501)
    )
    async def explain(user: str, item: str) -> Document:
        """The contribution of each item of a user's history to the score of an item, largest first."""
        model = service.model
        user_index = service.known("user", model.users.find_text, user)
        item_index = service.known("item", model.items.find_text, item)
        return await service.run(model.explain, item_index, user_index, None)

    @router.post(
        "/explain:session", **described("Explanation for a new user", schemas.ExplainAnswer, 404, 429, 501, body=True)
    )
    async def explain_session(body: schemas.ExplainSessionRequest) -> Document:
        """The contribution of each item of a new user's history to the score of an item, largest first."""
        model = service.model
        item = service.known("item", model.items.find, body.item)
        known, _ = service.split("item", model.items.find, body.history)
        if not known and model.can["explain"]:
            raise ApiError(404, "unknown_item", "the model knows none of these items")
        return await service.run(model.explain, item, None, known)


def _add_browsing(router: APIRouter, service: Service) -> None:
    @router.get("/users", **described("Find users", schemas.UsersAnswer, 429))
    async def users(query: schemas.SearchQuery) -> Document:
        """Users whose id contains a text; without one, the first users."""
        model = service.model
        search = model.user_search
        found = await service.run(search.find, query.query, query.limit)
        entries = [{"user_id": model.users.values[index], "count": int(search.counts[index])} for index in found]
        return {"users": entries, "model_version": model.version}

    @router.get("/users/{user:id}/history", **described("History of a user", schemas.HistoryAnswer, 404, 429))
    async def history(user: str, query: schemas.HistoryQuery) -> Document:
        """The items a user has in the training data, in the order of the interaction log."""
        model = service.model
        index = service.known("user", model.users.find_text, user)
        items = await service.run(model.history, index)
        entries = [model.titled(item) for item in items[: query.limit]]
        user_id = model.users.values[index]
        return {"user_id": user_id, "count": len(items), "items": entries, "model_version": model.version}

    @router.get("/items", **described("Find items", schemas.ItemsAnswer, 429))
    async def items(query: schemas.SearchQuery) -> Document:
        """Items whose id or title contains a text, popular ones first."""
        model = service.model
        search = model.item_search
        found = await service.run(search.find, query.query, query.limit)
        entries = [{**model.titled(index), "count": int(search.counts[index])} for index in found]
        return {"items": entries, "model_version": model.version}

    @router.get("/model", **described("Model card", schemas.ModelAnswer))
    async def card() -> Document:  # the name is part of the OpenAPI description
        """What the model is, what it was trained on, and how good it is by which protocol."""
        return service.model.card


def _add_operation(router: APIRouter, service: Service, admin_token: list[Any]) -> None:
    @router.get("/livez", **described("Alive", schemas.StatusAnswer, errors=False))
    async def alive() -> Document:
        """Answers as long as the process does."""
        return {"status": "ok"}

    @router.get("/readyz", **described("Ready", schemas.StatusAnswer))
    async def ready() -> Document:
        """Answers 200 while a model is loaded, 503 while the service is starting or stopping."""
        if service.stopping:
            raise service.rejected(503, "stopping", "the service is stopping")
        return {"status": "ok", "model_version": service.model.version}

    @router.get(
        "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}, summary="Prometheus"
    )
    async def metrics() -> Response:
        """Counters in Prometheus' text format."""
        return service.metrics.response()

    @router.post(
        "/v1/admin/reload",
        dependencies=admin_token,
        **described("Reload the model", schemas.ReloadAnswer, 403, 409, body=True),
    )
    async def reload() -> Document:
        """Loads what the configured run path holds now; the previous model answers until the new one is loaded."""
        if service.slot.loading:
            raise ApiError(409, "reload_running", "a run is being loaded", {"Retry-After": "1"})
        previous = service.slot.current
        try:
            model = await service.slot.load()
        except Exception:  # logged where it happened, with the path that must not be shown here
            raise ApiError(
                409, "reload_failed", "the run could not be loaded and the previous model continues; see the log"
            ) from None
        return {"model_version": model.version, "previous_version": None if previous is None else previous.version}

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        """The page for people."""
        return page_response()
