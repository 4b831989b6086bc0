"""The process: opens the release, listens, and ends when asked to, once every client has its answer.

uvicorn does not limit how long a client may take to send the head of a request: one that sends a header now and then
would hold its connection forever. `bounded_heads` limits it.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stillhouse.errors import InputError
from stillhouse.serving.app import make_app
from stillhouse.serving.errors import error_response
from stillhouse.serving.service import Service

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def bounded_heads(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol, which answers 408 and closes if a head is not complete within `seconds`.

    A connection that sends nothing at all is closed after the same time.
    """

    class BoundedHeads(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.trailing_data[0]:  # part of the next head arrived with the last body
                self._watch_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _watch_head(self) -> None:
            """Starts the timer with a head's first bytes, and stops it when the head is complete."""
            if self.conn.our_state is not h11.IDLE or self.conn.their_state is not h11.IDLE:
                self._stop()
            elif self._head_timer is None and not self.transport.is_closing():
                self._head_timer = self.loop.call_later(seconds, self._too_slow)

        def _stop(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _too_slow(self) -> None:
            self._head_timer = None
            if self.transport.is_closing():
                return
            message = f"the head of the request did not arrive within {seconds:g} seconds; send it faster"
            answer = error_response("", 408, message, {"Connection": "close"})
            self._write(h11.Response(status_code=408, headers=answer.raw_headers, reason=b"Request Timeout"))
            self._write(h11.Data(data=bytes(answer.body)))
            self._write(h11.EndOfMessage())
            self.transport.close()

        def _write(self, event: Any) -> None:
            self.transport.write(self.conn.send(event) or b"")

    return BoundedHeads


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
        http=bounded_heads(service.limits.head_seconds),
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
    current = service.shelf.current
    service.shelf.watch(watch)
    if service.drift:
        service.drift.start()
    log(f"release {current.name}, {len(current.passages):,} passages: http://{host}:{port}/")
    log(f"release {current.name}: {current.chosen}")
    try:
        _Server(config).run(sockets=[listening])
    finally:
        service.shelf.end()
        if service.drift:
            service.drift.end()
        service.batcher.end()
        if service.queries:
            service.queries.end()
    log("stopped; every request was answered")
