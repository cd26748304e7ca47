"""`create_app`: the service as an ASGI application."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rankformer.serving.browse_routes import browse_router
from rankformer.serving.explain_routes import explain_router
from rankformer.serving.gate import Gate
from rankformer.serving.limits import BodyLimits
from rankformer.serving.observing import Observing
from rankformer.serving.openapi import describe
from rankformer.serving.operation_routes import operation_router
from rankformer.serving.problems import from_exception
from rankformer.serving.recommend_routes import recommend_router
from rankformer.serving.service import Service
from rankformer.serving.settings import ServiceSettings, Tokens


def create_app(
    run: Path,
    settings: ServiceSettings | None = None,
    tokens: Tokens | None = None,
    *,
    on_failed_start: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Return the application that serves what `run` leads to; `app.state.service` is its `Service`.

    Args:
        run: a run folder, or a symbolic link to one; it is read when the application starts and at each reload.
        settings: its limits.
        tokens: its secrets; none by default.
        on_failed_start: called when the first model cannot be loaded; `service.slot.failure` says why.
    """
    settings, tokens = settings or ServiceSettings(), tokens or Tokens()
    service = Service(run, settings, tokens)

    async def first_load() -> None:
        try:
            await service.slot.load()
        except Exception:  # logged where it happened
            on_failed_start()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(first_load())  # meanwhile requests are told to come back
        yield
        service.close()
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading

    app = FastAPI(
        title="rankformer",
        summary="Ranked lists from a trained model",
        version=version("rankformer"),
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    for router in (recommend_router, explain_router, browse_router, operation_router):
        app.include_router(router(service))
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_middleware(BodyLimits, settings=settings)
    app.add_middleware(Gate, settings=settings, tokens=tokens)
    app.add_middleware(Observing, service=service)  # added last, so outermost
    app.openapi = describe(app, settings, tokens)  # type: ignore[method-assign]
    return app


async def _refuse_route(request: Request, error: Exception) -> Response:
    del request
    return from_exception(error).response()
