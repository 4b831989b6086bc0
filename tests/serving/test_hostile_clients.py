"""Requests that no client library would send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_releases import Running, running

from stillhouse import cli
from stillhouse.serving.settings import Limits


@pytest.fixture(scope="module")
def strict(two_releases: list[Path]) -> Iterator[Running]:
    with running(two_releases[0], Limits(body=200_000)) as service:
        yield service


def connected(service: Running) -> socket.socket:
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def read_all(client: socket.socket) -> bytes:
    """Read until the service closes the connection, or resets it after its answer."""
    found = b""
    try:
        while part := client.recv(4096):
            found += part
    except ConnectionError:
        pass
    return found


def send(service: Running, data: bytes) -> bytes:
    with connected(service) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the service answered and closed before all was sent
        return read_all(client)


@pytest.mark.parametrize("token", ["secret\n", " secret", "  ", "geheimnü", "se\tcret"])
def test_a_token_that_no_client_could_send_is_refused_at_start(
    token: str, two_releases: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STILLHOUSE_SERVE_TOKEN", token)
    assert cli.main(["serve", str(two_releases[0]), "--port", "0"]) == 2
    assert "$STILLHOUSE_SERVE_TOKEN" in capsys.readouterr().err


DEEP = [b"[" * 150_000, b'{"query":' * 20_000, b'{"filter": {"article": ' * 5000]
DEEP += [b'{"query": ' + b"[" * 60_000 + b"]" * 60_000 + b"}"]


@pytest.mark.parametrize("body", DEEP)
@pytest.mark.parametrize("path", ["/search", "/embed", "/v1/embeddings", "/v2/models/retriever/infer"])
def test_deep_nesting_is_a_bad_request(strict: Running, path: str, body: bytes) -> None:
    answer = strict.client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422) and "Traceback" not in answer.text


parts = [b"/", b"..", b"%2f", b"%0d%0a", b"%00", b"%ff", b"v2/models", b"?q=", b"#"]
targets = st.one_of(
    st.sampled_from([b"/search", b"/v2/models/..%2f..%2fetc%2fpasswd", b"/..//../search"]),
    st.lists(st.sampled_from(parts), max_size=6).map(lambda found: b"/" + b"".join(found)),
)
values = st.one_of(
    st.binary(max_size=40).map(lambda each: each.replace(b"\n", b" ").replace(b"\r", b" ").replace(b"\0", b" ")),
    st.sampled_from([b"1_0", b"-1", b"\xb2", b"99999999999999999999", b"chunked, chunked", b"a\r\nX-Injected: 1"]),
)
names = st.sampled_from(
    [b"X-Request-Id", b"Content-Length", b"Transfer-Encoding", b"Authorization", b"Cookie", b"Content-Type", b"Expect"]
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from([b"GET", b"POST", b"DELETE", b"PUT", b"TRACE", b"G\xff", b"CONNECT"]),
    target=targets,
    headers=st.lists(st.tuples(names, values), max_size=3),
    body=st.binary(max_size=60),
)
def test_no_bytes_on_the_wire_make_the_service_fail(
    strict: Running, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    lines = [b"%s %s HTTP/1.1" % (method, target), b"Host: x", b"Connection: close"]
    lines += [b"%s: %s" % each for each in headers]
    found = send(strict, b"\r\n".join(lines) + b"\r\n\r\n" + body)
    assert b" 500 " not in found.partition(b"\r\n")[0] and b"Traceback" not in found
    head = found.partition(b"\r\n\r\n")[0].lower()
    assert b"x-injected" not in head  # nothing that a client sent comes back as a header
    assert strict.client.get("/health").status_code == 200
