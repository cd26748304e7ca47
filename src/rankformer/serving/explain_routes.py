"""Reasons: the parts that a score is made of."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from rankformer.scoring.explanation import Explanation
from rankformer.serving import answers
from rankformer.serving.json_text import JsonResponse
from rankformer.serving.openapi import body_of, errors
from rankformer.serving.recommend_routes import known_history
from rankformer.serving.requests import ExplainSessionRequest
from rankformer.serving.served_model import ServedModel
from rankformer.serving.service import Service


def explain_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["reasons"])

    @router.get(
        "/explain/{user:id}/{item:id}",
        response_model=answers.ExplainAnswer,
        responses=errors(404, 429, 501),
        summary="Reasons for a user",
    )
    async def explain(user: str, item: str) -> JsonResponse:
        """What each item of a user's history brings to the score of an item, best first."""
        model = service.model
        user_index = service.known_user(model.users.find_text(user), user)
        item_index = service.known_item(model.items.find_text(item), item)
        found = await service.run(model.recommender.explain, model.raw_user(user_index), model.raw_item(item_index))
        return _answer(model, found, model.users.values[user_index], item_index)

    @router.post(
        "/explain:session",
        response_model=answers.ExplainAnswer,
        responses=errors(404, 429, 501, body=True),
        openapi_extra=body_of(ExplainSessionRequest),
        summary="Reasons for a user never seen",
    )
    async def explain_session(request: Request) -> JsonResponse:
        """What each item of a made-up history brings to the score of an item, best first."""
        asked = ExplainSessionRequest.read(await request.body())
        model = service.model
        service.check_length("history", asked.history, service.settings.max_history)
        item = service.known_item(model.items.find(asked.item), asked.item)
        known, _ = known_history(service, model, asked.history)
        history = [model.raw_item(index) for index in known]
        found = await service.run(model.recommender.explain_history, history, model.raw_item(item))
        return _answer(model, found, None, item)

    return router


def _answer(model: ServedModel, found: Explanation, user: Any, item: int) -> JsonResponse:
    reason_items = model.recommender.item_ids.index_of([reason.item_id for reason in found.reasons])
    reasons = [
        {"item_id": model.items.values[index], "title": model.titles[index], "contribution": reason.contribution}
        for index, reason in zip(reason_items.tolist(), found.reasons, strict=True)
    ]
    return JsonResponse(
        {
            "user_id": user,
            "item_id": model.items.values[item],
            "title": model.titles[item],
            "score": found.score,
            "reasons": reasons,
            "own": found.own,
            "crowd": found.crowd,
            "model_version": model.version,
        }
    )
