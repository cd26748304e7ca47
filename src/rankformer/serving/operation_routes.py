"""For those who run the service: whether it lives and answers, what it counts, and the exchange of the model."""

from fastapi import APIRouter
from starlette.responses import Response

from rankformer.serving import answers
from rankformer.serving.json_text import JsonResponse
from rankformer.serving.openapi import errors
from rankformer.serving.page import page_response
from rankformer.serving.problems import Problem
from rankformer.serving.service import Service


def operation_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["operation"])

    @router.get("/livez", response_model=answers.StatusAnswer, summary="Alive")
    async def alive() -> JsonResponse:
        """Answers as long as the process does."""
        return JsonResponse({"status": "ok"})

    @router.get("/readyz", response_model=answers.StatusAnswer, responses=errors(), summary="Ready")
    async def ready() -> JsonResponse:
        """Answers 200 while a model is there to be asked, 503 while the service is starting or stopping."""
        if service.stopping:
            raise service.turned_away(503, "stopping", "the service is stopping")
        return JsonResponse({"status": "ok", "model_version": service.model.version})

    @router.get(
        "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}, summary="Prometheus"
    )
    async def metrics() -> Response:
        """Counters in Prometheus' text form."""
        return service.metrics.response()

    @router.post(
        "/v1/admin/reload",
        response_model=answers.ReloadAnswer,
        responses=errors(403, 409, body=True),
        summary="Exchange the model",
    )
    async def reload() -> JsonResponse:
        """Loads what the configured run path holds now; the model before answers until the new one is whole."""
        if service.slot.loading:
            raise Problem(409, "reload_running", "a run is being loaded", {"Retry-After": "1"})
        before = service.slot.current
        try:
            model = await service.slot.load()
        except Exception:  # logged where it happened, with the path that must not be told here
            raise Problem(
                409, "reload_failed", "the run could not be loaded and the model before goes on; see the log"
            ) from None
        previous = None if before is None else before.version
        return JsonResponse({"model_version": model.version, "previous_version": previous})

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        """The page for people."""
        return page_response()

    return router
