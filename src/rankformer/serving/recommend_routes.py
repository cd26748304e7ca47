"""Lists: of a known user, of many, of someone never seen, and of the items most like one."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from rankformer.serving import answers
from rankformer.serving.json_text import JsonResponse, json_bytes
from rankformer.serving.openapi import body_of, errors, query_of
from rankformer.serving.problems import invalid, unknown
from rankformer.serving.requests import BatchRequest, LengthQuery, RecommendQuery, SessionRequest
from rankformer.serving.served_model import Entry, ServedModel, Wish
from rankformer.serving.service import Service


def recommend_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["lists"])

    @router.get(
        "/recommend/{user:id}",
        response_model=answers.RecommendAnswer,
        responses=errors(404, 429),
        openapi_extra=query_of(RecommendQuery),
        summary="One user",
    )
    async def recommend(user: str, request: Request) -> JsonResponse:
        """The items ranked highest for a user of the training data, without those the user has."""
        query = RecommendQuery.read(request.scope["query_string"])
        model = service.model
        index = service.known_user(model.users.find_text(user), user)
        wish = service.wish(model.items.find_text, query.k, query.include_seen, query.allow, query.block)
        items = await service.list_of(model, index, wish)
        return JsonResponse(
            {"user_id": model.users.values[index], "items": items, "model_version": model.version},
        )

    @router.post(
        "/recommend:batch",
        response_model=answers.BatchAnswer,
        responses=errors(404, 429, body=True),
        openapi_extra=body_of(BatchRequest),
        summary="Many users",
    )
    async def recommend_batch(request: Request) -> JsonResponse:
        """The lists of many users in one answer; a user that is not known gets an error in place of a list."""
        asked = BatchRequest.read(await request.body())
        model = service.model
        settings = service.settings
        service.check_length("users", asked.users, settings.max_users)
        wish = service.wish(model.items.find, asked.k, asked.include_seen, asked.allow, asked.block)
        if len(asked.users) * asked.k > settings.max_places:
            raise invalid(f"users times k may be at most {settings.max_places}; ask in several batches")
        found = [model.users.find(user) for user in asked.users]
        service.metrics.unknown("user", sum(index is None for index in found))
        return JsonResponse(await service.run(_batch, model, asked.users, found, wish))

    @router.post(
        "/recommend:session",
        response_model=answers.SessionAnswer,
        responses=errors(404, 429, 501, body=True),
        openapi_extra=body_of(SessionRequest),
        summary="A user never seen",
    )
    async def recommend_session(request: Request) -> JsonResponse:
        """The list of someone who was not in the training data, from the items they have."""
        asked = SessionRequest.read(await request.body())
        model = service.model
        service.check_length("history", asked.history, service.settings.max_history)
        wish = service.wish(model.items.find, asked.k, asked.include_seen, asked.allow, asked.block)
        known, missing = known_history(service, model, asked.history)
        answer = await service.run(_session, model, known, wish)
        return JsonResponse({**answer, "unknown_items": missing, "model_version": model.version})

    @router.get(
        "/items/{item:id}/similar",
        response_model=answers.SimilarAnswer,
        responses=errors(404, 429, 501),
        openapi_extra=query_of(LengthQuery),
        summary="Similar items",
    )
    async def similar(item: str, request: Request) -> JsonResponse:
        """The items whose vectors point most nearly the same way."""
        query = LengthQuery.read(request.scope["query_string"])
        model = service.model
        index = service.known_item(model.items.find_text(item), item)
        service.check_k(query.k)
        items = await service.run(_similar, model, index, query.k)
        named = {"item_id": model.items.values[index], "title": model.titles[index]}
        return JsonResponse({**named, "items": items, "model_version": model.version})

    return router


def known_history(service: Service, model: ServedModel, history: list[Any]) -> tuple[list[int], list[Any]]:
    """Return the indices of the known items of a history, repeats kept, and the ids of the others."""
    found = [(raw_id, model.items.find(raw_id)) for raw_id in history]
    missing = [raw_id for raw_id, index in found if index is None]
    service.metrics.unknown("item", len(missing))
    return [index for _, index in found if index is not None], missing


def _batch(model: ServedModel, users: list[Any], found: list[int | None], wish: Wish) -> bytes:
    """Return the whole answer as text: writing it can take longer than finding it, and is done in this thread too."""
    lists = iter(model.lists([index for index in found if index is not None], wish))
    results: list[dict[str, Any]] = [
        {"user_id": user, **unknown("user", user).to_dict()}
        if index is None
        else {"user_id": model.users.values[index], "items": next(lists)}
        for user, index in zip(users, found, strict=True)
    ]
    return json_bytes({"results": results, "model_version": model.version})


def _session(model: ServedModel, history: list[int], wish: Wish) -> dict[str, Any]:
    found = model.recommender.recommend_histories(
        {"session": [model.raw_item(index) for index in history]},
        wish.k,
        include_seen=wish.include_seen,
        allow=_raw(model, wish.allow),
        block=_raw(model, wish.block),
    )
    return {"items": _entries(model, found.table, "item_id"), "fallback": "session" in found.fallbacks}


def _similar(model: ServedModel, item: int, k: int) -> list[Entry]:
    return _entries(model, model.recommender.similar_items(model.raw_item(item), k).table, "similar_item_id")


def _raw(model: ServedModel, items: tuple[int, ...] | None) -> list[Any] | None:
    return None if items is None else [model.raw_item(index) for index in items]


def _entries(model: ServedModel, table: Any, column: str) -> list[Entry]:
    """Return one list of the recommender's, whose ids may be of any type, as a list that can travel."""
    indices = model.recommender.item_ids.index_of(table[column].to_pylist())
    return model.entries(indices.tolist(), table["score"].to_pylist())
