"""Client of a server with OpenAI's chat API: `POST {address}/chat/completions`, repeated until an answer is usable.

| what happens | what follows |
|---|---|
| 408, 425, 429, 5xx, a timeout, a broken connection | the request is sent again after a pause, `tries` times in all |
| an answer that is not JSON, is empty or unusable | the request is sent again at once, with the next seed |
| 400, 413, 422 and other 4xx | the server refuses this request, which gets no answer |
| 3xx, 401, 403, 404, 405, no connection, an unknown certificate | `InputError`, since every request would fail |

Redirections are refused, since `urllib` would send the key to any address that they lead to. Messages of a server are
foreign text: they are cut short, and the key and anything that looks like a password are removed.
"""

import json
import os
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Self, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact, refuse_secret

T = TypeVar("T")

KEY = "STILLHOUSE_CHAT_KEY"
"""The environment variable with the server's key, which is stored nowhere else."""
FIRST_PAUSE = 1.0
"""Seconds before the second try if the server does not say how long to wait; each further pause is twice as long."""
LONGEST_PAUSE = 120.0
"""Seconds, also if the server asks for more."""
MOST_SAID = 200
"""Characters of a server's message that our own messages quote."""
LASTING = (ConnectionRefusedError, ssl.SSLError, socket.gaierror)
"""Why a connection fails at every request: no server, one that is not trusted, or an unknown name."""
AGAIN = (408, 425, 429)
"""Status codes, besides 5xx, after which a request may be sent again."""
REMEDIES = {
    401: f"set ${KEY} to its key",
    403: f"set ${KEY} to a key that may use this model",
    404: "check the address, which usually ends in /v1, and the model's name",
    405: "check the address, which usually ends in /v1",
}
"""Remedies for status codes that every request would get."""


class BrokenAnswer(Exception):
    """There is no usable answer; the message says why."""


class _Trouble(BrokenAnswer):
    """The server gave no answer, but may give one later; `pause` is the seconds that it asks to wait, or 0."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


class _Refusal(BrokenAnswer):
    """The server refuses this request and would refuse it again."""


@dataclass(frozen=True)
class Reply:
    """A model's answer. `cut` says that it reached the token limit.

    If it was sampled several times, `log_likelihoods` has that of each line.
    """

    text: str
    cut: bool
    log_likelihoods: tuple[float, ...] = ()


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *request: Any) -> None:
        return None


class ChatServer:
    """A server that several threads may query at once; as a context manager, it ends their pauses when it exits.

    Raises `InputError` for an address that is not an HTTP address or holds a secret, and for a key that does not fit
    into a header.
    """

    def __init__(self, address: str, *, timeout_s: float, tries: int) -> None:
        self.address = checked_address(address)
        self._timeout_s, self._tries = timeout_s, tries
        self._key = _key()
        self._opener = urllib.request.build_opener(_NoRedirection)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def ask(self, request: Mapping[str, Any], read: Callable[[Reply], T]) -> T:
        """Returns what `read` makes of the answer to a request. Each further try changes the request's `seed`.

        `read` raises `BrokenAnswer` for an unusable answer. Raises the last `BrokenAnswer` if no try gives a usable
        answer, and `InputError` for a failure that every other request would meet too.
        """
        for number in range(self._tries):
            try:
                return read(self._once({**request, "seed": request["seed"] + number}))
            except _Refusal:
                raise
            except BrokenAnswer as error:
                if number + 1 == self._tries or self._over.is_set():
                    raise
                if isinstance(error, _Trouble):
                    self._over.wait(min(error.pause or FIRST_PAUSE * 2**number, LONGEST_PAUSE))
        raise AssertionError("at least one try")

    def _once(self, request: Mapping[str, Any]) -> Reply:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = json.dumps(request).encode("ascii")
        post = urllib.request.Request(f"{self.address}/chat/completions", data, headers, method="POST")
        try:
            status, retry_after, content = self._post(post)
        except (HTTPException, OSError) as error:
            # Only a connection that was never made is an `URLError`.
            reason: Any = error.reason if isinstance(error, URLError) else error
            if reason is not error and isinstance(reason, LASTING) and reason.errno != socket.EAI_AGAIN:
                # Without the error itself, since a proxy's error may quote a header.
                raise InputError(
                    f"{self.address} cannot be reached ({self._said(str(reason))}); start the server, or correct "
                    "`base_url`"
                ) from None
            if isinstance(reason, TimeoutError):
                raise _Trouble(f"no answer in {self._timeout_s:g} s") from None
            raise _Trouble(f"the connection broke ({type(reason).__name__})") from None
        if status != 200:
            raise self._refused(status, retry_after, content)
        return self._reply(content)

    def _post(self, request: urllib.request.Request) -> tuple[int, str, bytes]:
        """The status, the `Retry-After` and the content of a response."""
        try:
            answer: Any = self._opener.open(request, timeout=self._timeout_s)
        except HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.headers.get("Retry-After") or "", answer.read()

    def _refused(self, status: int, retry_after: str, content: bytes) -> Exception:
        why = f"HTTP {status}: {self._said_by(content)}"
        if status in AGAIN or status >= 500:
            return _Trouble(why, float(retry_after) if retry_after.isdecimal() else 0.0)
        if 300 <= status < 400:
            return InputError(f"{self.address} redirects ({why}); give the address that it redirects to")
        if status in REMEDIES:
            return InputError(f"{self.address} refuses the request ({why}); {REMEDIES[status]}")
        return _Refusal(why)

    def _reply(self, content: bytes) -> Reply:
        try:
            choice = json.loads(content)["choices"][0]
            text, cut = choice["message"]["content"], choice.get("finish_reason") == "length"
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise BrokenAnswer(f"the response is not a chat completion: {self._said_by(content)}") from None
        if not isinstance(text, str) or not text.strip():
            raise BrokenAnswer("the answer is empty" + (", cut off at max_tokens" if cut else ""))
        secret = len(self._key) >= 16  # a shorter one, such as "test", is part of words
        return Reply(text.replace(self._key, "***") if secret else text, cut)

    def _said_by(self, content: bytes) -> str:
        """The error message in a response: OpenAI's `error.message`, or the beginning of the content."""
        text = content.decode("utf-8", errors="replace")
        try:
            error = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, Mapping) else error)
        except (ValueError, TypeError, LookupError, RecursionError):
            pass
        return self._said(text)

    def _said(self, text: str) -> str:
        said = " ".join(redact(text.replace(self._key, "***") if self._key else text).split())
        return (said if len(said) <= MOST_SAID else f"{said[: MOST_SAID - 1]}…") or "no message"


def checked_address(address: str) -> str:
    """The address without a trailing slash. Raises `InputError` if it is invalid or holds a secret."""
    refuse_secret(address, "base_url", f"put the key into ${KEY}")
    try:
        parts = urlsplit(address.strip())
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        fits = False
    if not fits or parts.query or parts.fragment or not address.strip().isascii() or len(address.split()) != 1:
        raise InputError(
            f"base_url is {address!r}; give the address of an OpenAI chat API, such as http://localhost:11434/v1"
        )
    return address.strip().rstrip("/").removesuffix("/chat/completions")


def _key() -> str:
    key = os.environ.get(KEY, "").strip()
    if not all("!" <= character <= "~" for character in key):  # http.client would quote the key in its error
        raise InputError(f"${KEY} holds a space, a line break or another invalid character; set it again")
    return key
