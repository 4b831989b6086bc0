"""The client of a chat server that limits rates, fails, hangs and answers nonsense, as real ones do."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from itertools import repeat
from typing import Any

import pytest
from chat_server import Answer, completion, serving

from stillhouse.core.errors import InputError
from stillhouse.corpus import chat_api
from stillhouse.corpus.chat_api import KEY, BrokenAnswer, ChatServer, Reply, checked_address

REQUEST = {"model": "stand-in", "messages": [{"role": "user", "content": "why?"}], "seed": 7}
SECRET = "sk-abcdefghijklmnop"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_api, "FIRST_PAUSE", 0.01)
    monkeypatch.delenv(KEY, raising=False)


def one_after_the_other(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    """Return a function that gives these answers in turn, and then repeats the last one."""
    left: Iterator[Answer] = iter([*answers[:-1]])
    rest = repeat(answers[-1])
    return lambda request: next(left, None) or next(rest)


def ask(address: str, tries: int = 3, timeout_s: float = 5.0) -> str:
    def read(reply: Reply) -> str:
        if "?" not in reply.text:
            raise BrokenAnswer("it asks nothing")
        return reply.text

    with ChatServer(address, timeout_s=timeout_s, tries=tries) as server:
        return server.ask(REQUEST, read)


GOOD = completion("why salt?")
PASSING = {
    "rate limit": Answer('{"error": {"message": "slow down"}}', 429),
    "server error": Answer("oops", 500),
    "gateway": Answer("<html>Bad gateway</html>", 502),
    "hang": Answer("", waits=1.0),
    "page": Answer("<!DOCTYPE html><html><body>Log in</body></html>"),
    "half a JSON": Answer('{"choices": [{"message": {"content": "why'),
    "no choices": Answer('{"choices": []}'),
    "other JSON": Answer('["why?"]'),
    "no text": completion(None),
    "empty": completion("  \n"),
    "parts": completion([{"type": "text", "text": "why?"}]),
    "useless": completion("I am sorry."),
    "deep": Answer("[" * 100_000),
    "no UTF-8": Answer(b"\xff\xfe"),
    "fewer bytes than said": Answer("{", headers={"Transfer-Encoding": "chunked"}),
    "an error of fewer bytes than said": Answer("{", 503, headers={"Transfer-Encoding": "chunked"}),
}


@pytest.mark.parametrize("case", PASSING)
def test_transient_errors_are_retried(case: str) -> None:
    with serving(one_after_the_other(PASSING[case], GOOD)) as server:
        assert ask(server.address, timeout_s=0.3 if case == "hang" else 5.0) == "why salt?"
        assert [request["seed"] for request in server.requests] == [7, 8], "another seed, another answer"


@pytest.mark.parametrize("case", PASSING)
def test_persistent_errors_exhaust_the_tries(case: str) -> None:
    with serving(lambda request: PASSING[case]) as server:
        with pytest.raises(BrokenAnswer):
            ask(server.address, tries=2, timeout_s=0.3 if case == "hang" else 5.0)
        assert len(server.requests) == 2


def test_retry_after_is_respected() -> None:
    limit = Answer("{}", 429, {"Retry-After": "1"})
    with serving(one_after_the_other(limit, GOOD)) as server:
        assert ask(server.address) == "why salt?"
        first, second = server.times
        assert second - first >= 1


FATAL = {
    401: "set \\$STILLHOUSE_CHAT_KEY",
    403: "may use this model",
    404: "ends in /v1, and the model's name",
    405: "ends in /v1",
}


@pytest.mark.parametrize("status", FATAL)
def test_errors_that_every_request_would_meet_end_the_step(status: int) -> None:
    with serving(lambda request: Answer('{"error": {"message": "no\\nsuch"}}', status)) as server:
        with pytest.raises(InputError, match=f"HTTP {status}: no such.*{FATAL[status]}"):
            ask(server.address)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_request_is_not_retried(status: int) -> None:
    with serving(lambda request: Answer('{"error": "too many tokens"}', status)) as server:
        with pytest.raises(BrokenAnswer, match=f"HTTP {status}: too many tokens"):
            ask(server.address)
        assert len(server.requests) == 1


def test_an_unreachable_server_ends_the_step_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(InputError, match=r"cannot be reached.*refused.*start the server"):
        ask(f"http://127.0.0.1:{port}/v1")


def test_a_connection_that_breaks_later_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS reports a server that hangs up as an error of its own, like one of the certificate."""
    read = HTTPResponse.read
    breaks = iter([True])

    def broken(answer: HTTPResponse, *more: Any) -> bytes:
        if next(breaks, False):
            raise ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
        return read(answer, *more)

    monkeypatch.setattr(HTTPResponse, "read", broken)
    with serving(lambda request: GOOD) as server:
        assert ask(server.address) == "why salt?"


def test_the_key_is_sent_in_the_header_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, f"{SECRET}\n")
    with serving(lambda request: completion(f"why {SECRET}?")) as server:
        assert ask(server.address) == "why ***?"
        assert [headers["Authorization"] for headers in server.headers] == [f"Bearer {SECRET}"]
        assert SECRET not in json.dumps(server.requests)
    with serving(lambda request: Answer(f"Incorrect API key provided: {SECRET}", 401)) as server:
        with pytest.raises(InputError) as refused:
            ask(server.address)
        assert SECRET not in str(refused.value) and "***" in str(refused.value)
    monkeypatch.setenv(KEY, "test")
    with serving(lambda request: completion("why a latest test?")) as server:
        assert ask(server.address) == "why a latest test?"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_is_not_sent_to_another_server(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    with serving(lambda request: GOOD) as other:
        elsewhere = Answer("", status, {"Location": f"{other.address}/chat/completions"})
        with serving(lambda request: elsewhere) as server, pytest.raises(InputError, match="redirects"):
            ask(server.address)
        assert not other.headers


@pytest.mark.parametrize("key", ["two words", "a\nb", "a\r\nX-Other: b", "ключ", "\x00"])
def test_a_key_unfit_for_a_header_is_refused_without_showing_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_api.os, "environ", {KEY: key})
    with pytest.raises(InputError, match="set it again") as refused:
        ChatServer("http://127.0.0.1/v1", timeout_s=1, tries=1)
    assert key not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:11434/v1",
        "ftp://a/v1",
        "file:///etc/passwd",
        "http://",
        "http://a b/v1",
        "http://a:port/v1",
        "http://a/v1?version=2",
        "http://a/v1#x",
        "http://[::1/v1",
        "http://ä/v1",
    ],
)
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="give the address of an OpenAI chat API"):
        checked_address(address)


@pytest.mark.parametrize("address", ["https://user:pass@a/v1", "https://token@a/v1", "https://a/v1?key=abc"])
def test_an_address_with_a_secret_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(InputError, match=r"put the key into \$STILLHOUSE_CHAT_KEY") as refused:
        checked_address(address)
    assert "abc" not in str(refused.value) and "pass@" not in str(refused.value)
