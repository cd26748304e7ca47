"""Looking around: users, histories, items, and the card of the model; what the page needs besides lists."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from rankformer.serving import answers
from rankformer.serving.json_text import JsonResponse
from rankformer.serving.openapi import errors, query_of
from rankformer.serving.problems import invalid
from rankformer.serving.requests import HistoryQuery, SearchQuery
from rankformer.serving.served_model import ServedModel
from rankformer.serving.service import Service

_NOT_METRICS = ("event", "epoch", "best", "seconds")


def browse_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["browsing"])

    def check_limit(limit: int) -> None:
        if limit > service.settings.max_listed:
            raise invalid(f"limit: at most {service.settings.max_listed} entries may be asked for")

    @router.get(
        "/users",
        response_model=answers.UsersAnswer,
        responses=errors(429),
        openapi_extra=query_of(SearchQuery),
        summary="Find users",
    )
    async def users(request: Request) -> JsonResponse:
        """Users whose id contains a text; without one, the first users."""
        query = SearchQuery.read(request.scope["query_string"])
        check_limit(query.limit)
        model = service.model
        shelf = model.user_shelf
        found = await service.run(shelf.find, query.query, query.limit)
        entries = [{"user_id": model.users.values[index], "count": int(shelf.counts[index])} for index in found]
        return JsonResponse({"users": entries, "model_version": model.version})

    @router.get(
        "/users/{user:id}/history",
        response_model=answers.HistoryAnswer,
        responses=errors(404, 429),
        openapi_extra=query_of(HistoryQuery),
        summary="What a user has",
    )
    async def history(user: str, request: Request) -> JsonResponse:
        """The items a user has in the training data, in the order of its log."""
        query = HistoryQuery.read(request.scope["query_string"])
        check_limit(query.limit)
        model = service.model
        index = service.known_user(model.users.find_text(user), user)
        items = await service.run(model.history, index)
        entries = [{"item_id": model.items.values[item], "title": model.titles[item]} for item in items[: query.limit]]
        named = {"user_id": model.users.values[index], "count": len(items)}
        return JsonResponse({**named, "items": entries, "model_version": model.version})

    @router.get(
        "/items",
        response_model=answers.ItemsAnswer,
        responses=errors(429),
        openapi_extra=query_of(SearchQuery),
        summary="Find items",
    )
    async def items(request: Request) -> JsonResponse:
        """Items whose id or title contains a text, popular ones first."""
        query = SearchQuery.read(request.scope["query_string"])
        check_limit(query.limit)
        model = service.model
        shelf = model.item_shelf
        found = await service.run(shelf.find, query.query, query.limit)
        entries = [
            {"item_id": model.items.values[index], "title": model.titles[index], "count": int(shelf.counts[index])}
            for index in found
        ]
        return JsonResponse({"items": entries, "model_version": model.version})

    @router.get("/model", response_model=answers.ModelAnswer, responses=errors(), summary="The model's card")
    async def card() -> JsonResponse:
        """What the model is, what it was trained on, and how good it is by which protocol."""
        return JsonResponse(card_of(service.model))

    return router


def card_of(model: ServedModel) -> dict[str, Any]:
    """Return the card of a model; of a path on this machine only the last part is told."""
    run = model.run
    metric, curve = curve_of(run.log, run.settings.get("metric"))
    return {
        "model": run.model,
        "settings": run.settings,
        "seed": run.seed,
        "data": _without_folders(run.data),
        "metrics": run.metrics,
        "protocol": run.protocol,
        "versions": run.versions,
        "created": model.created,
        "users": len(model.users),
        "items": len(model.items),
        "pairs": len(run.recommender.history),
        "curve": curve,
        "curve_metric": metric,
        "can": model.can,
        "model_version": model.version,
    }


def curve_of(log: list[dict[str, Any]], wanted: str | None) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the metric that chose the best epoch, and its value at each validation."""
    validations = [event for event in log if event.get("event") == "validation"]
    names = [name for name in (validations[0] if validations else ()) if name not in _NOT_METRICS]
    metric = wanted if wanted in names else next(iter(names), None)
    points = [
        {"epoch": event.get("epoch"), "value": event.get(metric or ""), "seconds": event.get("seconds")}
        for event in validations
    ]
    return metric, points


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(entry) for key, entry in value.items()}
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
