"""The process: opens the release, listens, and ends when asked to, once every client has its answer."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import uvicorn

from stillhouse.core.errors import InputError
from stillhouse.serving.app import make_app
from stillhouse.serving.service import Service

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
