"""The application (all endpoints, and what guards them), and the process: it opens the release, listens, and ends when
asked to, once every client has its answer.
"""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from stillhouse import __version__
from stillhouse.core.errors import InputError
from stillhouse.serving import documents_api, embeddings_api, inference_api, page, rerank_api, search_api, status_api
from stillhouse.serving.batcher import Batcher
from stillhouse.serving.errors import error_response, on_http, on_invalid
from stillhouse.serving.guard import Guard
from stillhouse.serving.metrics import Metrics
from stillhouse.serving.open_releases import OpenReleases
from stillhouse.serving.service import Service
from stillhouse.serving.settings import Limits

DESCRIPTION = "Search in one release: a model, index and corpus made together. Each answer names its release."
SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Exception, _on_crash)
    return Guard(app, service)


async def _on_crash(request: Request, error: Exception) -> JSONResponse:
    return error_response(request.url.path, 500, "the service failed to answer; its log says why")


class _Server(uvicorn.Server):
    """uvicorn's server, which ends quietly: it does not raise the signal that ended it again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises `InputError` if the address is not available."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host}:{port} ({reason}); choose another address with --host and --port"
        ) from None
    # Connections inherit it. asyncio sets it only on sockets that it made itself, and without it the body of an answer
    # waits until the client has acknowledged the headers: 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def configured(service: Service, grace: float) -> uvicorn.Config:
    """uvicorn's settings for a service."""
    return uvicorn.Config(
        make_app(service),
        http="h11",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,  # a program on this machine could pose as any number of clients
        timeout_graceful_shutdown=ceil(grace),
        ws="none",
    )


def run(service: Service, listening: socket.socket, grace: float, watch: float, log: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C, then refuses new requests and finishes those in flight within `grace` seconds."""
    config = configured(service, grace)
    host, port = listening.getsockname()[:2]
    current = service.releases.current
    service.releases.watch(watch)
    log(f"release {current.name}, {len(current.passages):,} passages: http://{host}:{port}/")
    try:
        _Server(config).run(sockets=[listening])
    finally:
        service.releases.end()
        service.batcher.end()
    log("stopped; every request was answered")
