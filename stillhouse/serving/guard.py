"""What guards every endpoint: the token, the size and pace of bodies, the log and the metrics."""

from __future__ import annotations

import asyncio
import hmac
import time
import traceback
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stillhouse.serving.errors import error_response
from stillhouse.serving.metrics import Metrics
from stillhouse.serving.settings import Limits

OPEN = ("/health", "/ready", "/v2/health/live", "/v2/health/ready")
"""Endpoints that need no token: whether the service is alive."""
COOKIE = "stillhouse_token"
GONE = 499
"""The status counted if the client left before there was an answer, as in nginx."""


class Guard:
    """An ASGI application around another.

    `log` gets a line per request, without its content; `log_crash` gets the traceback of a failure.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        token: str,
        metrics: Metrics,
        log: Callable[[str], None],
        log_crash: Callable[[str], None],
    ) -> None:
        self._app, self._limits, self._token, self._metrics = app, limits, token, metrics
        self._log, self._log_crash = log, log_crash

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
            self._log_crash(traceback.format_exc().rstrip("\n"))
        finally:
            took = time.perf_counter() - began
            # A path that is not an endpoint may contain anything, even a question.
            route = getattr(scope.get("route"), "path", "") or "(other)"
            self._metrics.answered(route, status, took)
            self._log(f"{scope['method']} {route} {status} {1000 * took:.1f} ms")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if self._token and path not in OPEN and not self._may(scope):
            message = "give the service's token in the header `Authorization: Bearer TOKEN`"
            await error_response(path, 401, message, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        status, body = await self._body(scope, receive)
        if status == 413:
            message = f"the body is larger than {self._limits.body:,} bytes; send fewer or shorter texts at once"
            await error_response(path, 413, message, {"Connection": "close"})(scope, receive, send)
        elif status == 408:
            message = f"the body did not arrive within {self._limits.body_seconds:g} seconds; send it faster"
            await error_response(path, 408, message, {"Connection": "close"})(scope, receive, send)
        elif status == 200:
            sent = False

            async def whole() -> Message:
                nonlocal sent
                if sent:
                    return await receive()
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}

            await self._app(scope, whole, send)

    async def _body(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        """The whole body with status 200; 413 or 408 if it is too large or too slow, 0 if the client left."""
        length = Headers(scope=scope).get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > self._limits.body:
            return 413, b""
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return 0, b""
                    body += message.get("body", b"")
                    if len(body) > self._limits.body:
                        return 413, b""
                    if not message.get("more_body"):
                        return 200, bytes(body)
        except TimeoutError:
            return 408, b""

    def _may(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            given = ""
        if scope["path"] == "/" and for_browser(scope):
            if scope["method"] == "GET":
                return True  # an empty form to type the token into
            given = given or cookie_token(headers.get("cookie", ""))
            if not given:
                return True  # the form contains the token, which the page's own handler checks
        return same_token(given, self._token)


def for_browser(scope: Scope) -> bool:
    """Whether a request may be answered with a page. Browsers ask for HTML by name, and their forms send no JSON."""
    headers = Headers(scope=scope)
    return "text/html" in headers.get("accept", "") and "json" not in headers.get("content-type", "")


def same_token(given: str, token: str) -> bool:
    return hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def cookie_token(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
