"""The app: the interface, its description, and the map page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from tedtrajrec import __version__, maps
from tedtrajrec.server import openapi, problems
from tedtrajrec.server.docs_page import POLICY, docs_page
from tedtrajrec.server.guard import PAGE_POLICY, Guard
from tedtrajrec.server.loading import Served, load_served
from tedtrajrec.server.problems import ProblemError
from tedtrajrec.server.routes import router
from tedtrajrec.server.service import Service
from tedtrajrec.server.settings import ServerSettings

PAGE = Path(maps.__file__).parent / "page"
"""The files of the map page."""


def create_app(
    settings: ServerSettings,
    *,
    load: Callable[[ServerSettings], Served] = load_served,
    on_failure: Callable[[Exception], None] | None = None,
) -> FastAPI:
    """Return the app; it loads the model when it starts, and answers 503 until that is done.

    Parameters
    ----------
    settings
        What to serve, and the limits.
    load
        Loads what is served.
    on_failure
        Called with the error if that fails.
    """
    service = Service(settings, load, on_failure)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(service.start())
        yield
        await loading
        await asyncio.to_thread(service.stop)

    app = FastAPI(
        title="tedtrajrec",
        version=__version__,
        description="Turns sparse, irregular GPS into dense trips on the road network.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(router)
    problems.install(app)
    openapi.install(app)
    _add_pages(app)
    app.add_middleware(Guard, metrics=service.metrics, hosts=settings.served_hosts)
    return app


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        try:
            content = (PAGE / "index.html").read_bytes()
        except FileNotFoundError as error:
            raise ProblemError("not-found", "This copy of tedtrajrec comes without the map page.") from error
        headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
        return Response(content, headers=headers, media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return Response(docs_page(app.openapi()), headers={"Content-Security-Policy": POLICY}, media_type="text/html")

    app.mount("/static", GZipMiddleware(_PageFiles(directory=PAGE, check_dir=False), minimum_size=1024), name="static")


class _PageFiles(StaticFiles):
    """The files of the page, which browsers ask about again but need not load again."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = PAGE_POLICY  # of the worker, whose file is its own document
        return response

    async def get_response(self, path: str, scope: Scope) -> Response:
        if "\0" in path:
            raise ProblemError("not-found", "There is nothing at this address.")
        return await super().get_response(path, scope)
