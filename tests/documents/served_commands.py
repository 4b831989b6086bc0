"""Runs `stillhouse serve` of the documented commands in a thread of the tests' process, at a free port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from terminal import Terminal

from stillhouse import cli
from stillhouse.cli import serve
from stillhouse.serving import app

ADDRESS = "localhost:8000"
"""The address of the service in the documents."""


class Served:
    """The service that was started last. A new one takes its place, at another address."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.terminal: Terminal | None = None
        self.address = ""
        self.started: list[list[str]] = []
        self._server: Any = None
        self._thread: threading.Thread | None = None
        own, real = self, app.listen

        class Server(app._Server):
            """Handles no signals, which only the main thread can do, and can be stopped."""

            def __init__(self, config: Any) -> None:
                super().__init__(config)
                own._server = self

            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

        def listen(host: str, port: int) -> Any:
            found = real(host, 0)
            own.address = f"{host}:{found.getsockname()[1]}"
            return found

        patch.setattr(app, "_Server", Server)
        patch.setattr(app, "listen", listen)

    def __call__(self, words: list[str]) -> int:
        """Run a `stillhouse` command; `serve` returns once the service answers."""
        if words[0] != "serve":
            return cli.main(words)
        self.end()
        self.started.append(words[1:])
        codes: list[int] = []
        self._thread = threading.Thread(target=lambda: codes.append(serve.main(words[1:])), daemon=True)
        self._thread.start()
        while not (self._server and self._server.started):
            assert self._thread.is_alive(), f"the service of {words} did not start"
            time.sleep(0.01)
        assert self.terminal is not None
        self.terminal.replaced[ADDRESS] = self.address
        return 0

    def end(self) -> None:
        if self._server and self._thread:
            self._server.should_exit = True
            self._thread.join(timeout=60)
            assert not self._thread.is_alive()
        self._server = self._thread = None
