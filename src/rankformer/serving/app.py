"""`create_app`: the service as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rankformer.serving.errors import from_exception
from rankformer.serving.middleware import ServiceMiddleware
from rankformer.serving.routes import api_routes
from rankformer.serving.service import Service
from rankformer.serving.settings import ServiceSettings, Tokens


def create_app(run: Path, settings: ServiceSettings | None = None, tokens: Tokens | None = None) -> FastAPI:
    """Return the application that serves the run at a path; `app.state.service` is its `Service`.

    Args:
        run: a run folder, or a symbolic link to one; it is read when the application starts and at each reload.
            When the first load fails, `service.slot.failure` says why.
        settings: its limits.
        tokens: its secrets; none by default.
    """
    settings, tokens = settings or ServiceSettings(), tokens or Tokens()
    service = Service(run, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.slot.load_soon()  # meanwhile requests get 503
        yield
        await service.close()

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
    app.router.routes += api_routes(service, needs_token=tokens.access is not None)
    app.add_exception_handler(HTTPException, _route_error)
    app.add_middleware(ServiceMiddleware, service=service, tokens=tokens)
    return app


async def _route_error(request: Request, error: Exception) -> Response:
    del request
    return from_exception(error).response()
