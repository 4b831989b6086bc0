"""A server on loopback that answers requests with what a function returns for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: Mapping[str, str]

    @property
    def content(self) -> dict[str, Any]:
        """Its body, which is JSON or empty."""
        return dict(json.loads(self.body or b"{}"))


@contextmanager
def local_server(answer: Callable[[Asked], tuple[int, Any] | None]) -> Iterator[str]:
    """Yields its address. `answer` returns a status, and text or what is sent as JSON; after None, it hangs up."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            parts, length = urlsplit(self.path), int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            found = answer(Asked(self.command, parts.path, dict(parse_qsl(parts.query)), body, self.headers))
            if found is None:
                self.close_connection = True
                self.connection.close()
                return
            status, content = found
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("content-type", "text/plain" if isinstance(content, str) else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
