"""What guards every endpoint: the token, the size of bodies, the log and the metrics."""

import hmac
import time
import traceback

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stillhouse.serving.errors import error_response
from stillhouse.serving.service import Service

OPEN = ("/health", "/ready", "/v2/health/live", "/v2/health/ready")
"""Endpoints that need no token: the probes for whether the service is alive."""
GONE = 499
"""The status counted if the client disconnected before the answer, as in nginx."""


class Guard:
    """An ASGI application around another.

    The service's log gets the traceback of a failure and, if it logs requests, a line for each, without its content.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, watched)
        except Exception:  # Starlette answered with 500 and raises it again
            status = 500
            self._service.log(traceback.format_exc().rstrip("\n"))
        finally:
            took = time.perf_counter() - began
            # A path that is not an endpoint may contain anything, even a question.
            route = getattr(scope.get("route"), "path", "") or "(other)"
            self._service.metrics.answered(route, status, took)
            if self._service.log_requests:
                self._service.log(f"{scope['method']} {route} {status} {1000 * took:.1f} ms")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, size, service = scope["path"], 0, self._service
        asks_itself = path == "/" and for_browser(scope)  # the page has a field for the token
        given = bearer(Headers(scope=scope))
        may = not service.token or path in OPEN or asks_itself or same_token(given, service.token)
        if not may:
            message = "give the service's token in the header `Authorization: Bearer TOKEN`"
            await error_response(path, 401, message, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > service.limits.body:
                text = f"the body is larger than {service.limits.body:,} bytes; send fewer or shorter texts at once"
                raise HTTPException(413, text, {"Connection": "close"})
            return message

        await self._app(scope, limited, send)


def for_browser(scope: Scope) -> bool:
    """Whether a request may be answered with a page. Browsers ask for HTML by name, and their forms send no JSON."""
    headers = Headers(scope=scope)
    return "text/html" in headers.get("accept", "") and "json" not in headers.get("content-type", "")


def bearer(headers: Headers) -> str:
    """The token that a client gives in the header `Authorization`, or ""."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    return given if kind.lower() == "bearer" else ""


def same_token(given: str, token: str) -> bool:
    return hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode("utf-8", "replace"))
