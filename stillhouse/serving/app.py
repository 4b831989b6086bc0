"""The application: all endpoints, and what guards them."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from stillhouse import __version__
from stillhouse.serving import (
    documents_api,
    embeddings_api,
    inference_api,
    page,
    rerank_api,
    search_api,
    status_api,
)
from stillhouse.serving.batcher import Batcher
from stillhouse.serving.errors import Problem, error_response, on_http, on_invalid, on_problem
from stillhouse.serving.guard import Guard
from stillhouse.serving.metrics import Metrics
from stillhouse.serving.open_releases import OpenReleases
from stillhouse.serving.service import Service
from stillhouse.serving.settings import Limits

DESCRIPTION = "Search in one release: a model, index and corpus made together. Each answer names its release."


def make_service(releases: OpenReleases, limits: Limits, log: Callable[[str], None], **settings: object) -> Service:
    """Builds the service of these releases, with its queue and metrics. `settings` are those of `Service`."""
    metrics = Metrics()
    batcher = Batcher(limits, metrics.batch)
    metrics.gauge("waiting", lambda: batcher.waiting)
    metrics.gauge("swaps", lambda: releases.swaps)
    metrics.gauge("refusals", lambda: releases.refusals)
    metrics.gauge("refused", lambda: releases.refused is not None)
    metrics.gauge("behind_seconds", lambda: releases.behind)
    metrics.gauge("looked_timestamp_seconds", lambda: releases.looked)
    return Service(releases, batcher, limits, metrics, log, **settings)  # type: ignore[arg-type]


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service."""
    app = FastAPI(
        title="Stillhouse search", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None
    )
    app.state.service = service
    # The page comes first: it answers only browsers, and the others answer the same addresses for programs.
    for api in (page, search_api, documents_api, embeddings_api, rerank_api, inference_api, status_api):
        app.include_router(api.router)
    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Exception, _on_crash)
    log = service.log if service.log_requests else lambda line: None
    return Guard(app, service.limits, service.token, service.metrics, log, service.log)


async def _on_crash(request: Request, error: Exception) -> JSONResponse:
    return error_response(request.url.path, 500, "the service failed to answer; its log says why")
