"""A server with OpenAI's chat API for tests: it gives the configured answers and records the requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A response, which the server sends after `waits` seconds."""

    body: bytes | str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    waits: float = 0.0


def completion(text: object, finish_reason: str = "stop") -> Answer:
    """A complete answer from a model."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": finish_reason}]
    return Answer(json.dumps({"object": "chat.completion", "choices": choices}))


def asked_about(request: dict[str, Any]) -> str:
    """The last line of the prompt: in the built-in prompt it is the passage's text."""
    return str(request["messages"][0]["content"]).splitlines()[-1]


def two_questions(request: dict[str, Any]) -> Answer:
    """Two numbered questions with words of the passage, as a model writes them."""
    text = asked_about(request)
    words = text.split()
    return completion(f"1. What of {' '.join(words[:4])}?\n2. Where {' '.join(words[-4:])} of {words[1]} {words[3]}?")


class ChatServer:
    """`respond` makes the answer to a request's body. `requests` and `headers` record the body and headers of each."""

    def __init__(self, respond: Callable[[dict[str, Any]], Answer]) -> None:
        self.respond = respond
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self._lock = threading.Lock()
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/v1/chat/completions", self.path
                with own._lock:
                    own.requests.append(body)
                    own.headers.append(dict(self.headers))
                    own.times.append(time.monotonic())
                    answer = own.respond(body)
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.send(answer)

            def do_GET(self) -> None:  # a redirected POST would arrive here
                with own._lock:
                    own.headers.append(dict(self.headers))
                self.send_error(405)

            def send(self, answer: Answer) -> None:
                body = answer.body.encode() if isinstance(answer.body, str) else answer.body
                time.sleep(answer.waits)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(respond: Callable[[dict[str, Any]], Answer] = two_questions) -> Iterator[ChatServer]:
    server = ChatServer(respond)
    try:
        yield server
    finally:
        server.close()


@cache
def address_of_this_process() -> str:
    """The address of a server that answers every request with two questions and lives as long as this process."""
    return ChatServer(two_questions).address
