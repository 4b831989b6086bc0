"""A server with OpenAI's chat API, asked until it gives a usable answer: `POST {address}/chat/completions`.

| what happens | what follows |
|---|---|
| 408, 425, 429, 5xx, a timeout, a broken connection | the request is sent again after a pause, `tries` times in all |
| an answer that is no JSON, is empty or cannot be used | the same at once, with the next seed |
| 400, 413, 422 and other 4xx | the server refuses this request: it gets no answer |
| 3xx, 401, 403, 404, 405, no connection, an unknown certificate | `InputError`: every other request would fare alike |

A `Retry-After` holds up all requests, since rate limits are of the server and not of one request. Redirections are
refused, since `urllib` would take the key along to wherever they lead. What a server says is text of others: it is cut
short, and neither the key nor anything that looks like a password stays in it.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from types import TracebackType
from typing import IO, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from stillhouse.errors import InputError
from stillhouse.remote.address import redact, refuse_secret
from stillhouse.remote.deadline import within

T = TypeVar("T")

KEY = "STILLHOUSE_CHAT_KEY"
"""The environment variable with the server's key; it stands nowhere else."""
FIRST_PAUSE = 1.0
"""Seconds before the second try where the server does not say how long to wait; each further pause is twice as long."""
LONGEST_PAUSE = 120.0
"""Seconds; a server that asks for more ends the work, which goes on when it is started again."""
MOST_BYTES = 1 << 20
"""A longer answer is a broken one."""
MOST_SAID = 200
"""Characters of what a server says that a message repeats."""
AGAIN = (408, 425, 429)
"""Status codes, beside 5xx, of requests that may be sent again."""
REMEDIES = {
    401: f"set ${KEY} to its key",
    403: f"set ${KEY} to a key that may use this model",
    404: "check the address, which usually ends in /v1, and the model's name",
    405: "check the address, which usually ends in /v1",
}
"""What to do about a status code that every request would get."""


class BrokenAnswer(Exception):
    """There is an answer and it cannot be used, or there is none; the message says why."""


class _Trouble(BrokenAnswer):
    """The server gave no answer now and may give one later; `pause` is what it asks for in seconds, or None."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


class _Refusal(BrokenAnswer):
    """The server refuses this request and would refuse it again."""


@dataclass(frozen=True)
class Reply:
    """What a model answered. `cut` where it reached the most tokens that it was allowed."""

    text: str
    cut: bool


@dataclass(frozen=True)
class _Response:
    status: int
    retry_after: str
    content: bytes


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *request: Any) -> None:
        return None


class ChatServer:
    """A server that threads may ask side by side; a context manager, whose end ends their pauses too.

    Raises `InputError` for an address that is no HTTP address or holds a secret, and for a key that no header can hold.
    """

    def __init__(self, address: str, *, timeout_s: float, tries: int) -> None:
        self.address = checked_address(address)
        self._timeout_s, self._tries = timeout_s, tries
        self._key = _key()
        self._opener = urllib.request.build_opener(_NoRedirection)
        self._over = threading.Event()
        self._lock, self._resume = threading.Lock(), 0.0

    def __enter__(self) -> ChatServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def ask(self, request: Mapping[str, Any], read: Callable[[Reply], T]) -> T:
        """What `read` makes of the answer to a request, which holds a `seed` for every further try to change.

        `read` raises `BrokenAnswer` for an answer that cannot be used. Raises the last `BrokenAnswer` where none of
        the tries gave one that can, and `InputError` for what every other request would meet.
        """
        for number in range(self._tries):
            self._wait_for_turn()
            try:
                return read(self._once({**request, "seed": request["seed"] + number}))
            except _Refusal:
                raise
            except BrokenAnswer as error:
                if number + 1 == self._tries:
                    raise
                if isinstance(error, _Trouble):
                    self._pause(error, FIRST_PAUSE * 2**number)
        raise AssertionError("at least one try")

    def _wait_for_turn(self) -> None:
        while not self._over.is_set():
            with self._lock:
                seconds = self._resume - time.monotonic()
            if seconds <= 0:
                return
            self._over.wait(seconds)
        raise BrokenAnswer("the work ended")

    def _pause(self, trouble: _Trouble, seconds: float) -> None:
        if trouble.pause is None:
            self._over.wait(min(seconds, LONGEST_PAUSE))
            return
        if trouble.pause > LONGEST_PAUSE:
            raise InputError(
                f"{self.address} asks to wait for {trouble.pause:,.0f} s ({trouble}); run the same command again then: "
                "what was answered is kept"
            )
        with self._lock:
            self._resume = max(self._resume, time.monotonic() + trouble.pause)

    def _once(self, request: Mapping[str, Any]) -> Reply:
        data = json.dumps(request).encode("ascii")
        try:
            response = within(self._timeout_s, lambda: self._post(data))
        except TimeoutError:
            raise _Trouble(f"no answer in {self._timeout_s:g} s") from None
        except URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _Trouble(f"no answer in {self._timeout_s:g} s") from None
            if isinstance(error.reason, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
                raise _Trouble(f"the connection broke ({type(error.reason).__name__})") from None
            # Not the error itself: one of a proxy may quote a header.
            raise InputError(
                f"{self.address} cannot be reached ({self._said(str(error.reason))}); start the server, or mend "
                "`base_url`"
            ) from None
        except (HTTPException, ConnectionError) as error:
            raise _Trouble(f"the connection broke ({type(error).__name__})") from None
        self._check_status(response)
        return self._reply(response.content)

    def _post(self, data: bytes) -> _Response:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(f"{self.address}/chat/completions", data, headers, method="POST")
        try:
            answer: Any = self._opener.open(request, timeout=self._timeout_s)
        except HTTPError as error:
            answer = error
        with answer:
            return _Response(answer.status, answer.headers.get("Retry-After") or "", self._content(answer))

    def _content(self, answer: IO[bytes]) -> bytes:
        """What the server sends, at most a byte more than `MOST_BYTES`; `TimeoutError` where it drips for too long."""
        until, content = time.monotonic() + self._timeout_s, bytearray()
        while len(content) <= MOST_BYTES and time.monotonic() < until and not self._over.is_set():
            part = answer.read1(MOST_BYTES + 1 - len(content))  # type: ignore[attr-defined]
            if not part:
                return bytes(content)
            content += part
        if len(content) > MOST_BYTES:
            return bytes(content)
        raise TimeoutError

    def _check_status(self, response: _Response) -> None:
        status = response.status
        if status == 200:
            return
        why = f"HTTP {status}: {self._said_by(response.content)}"
        if status in AGAIN or status >= 500:
            raise _Trouble(why, seconds_of(response.retry_after))
        if 300 <= status < 400:
            raise InputError(f"{self.address} leads elsewhere ({why}); give the address that it leads to")
        if status in REMEDIES:
            raise InputError(f"{self.address} refuses the request ({why}); {REMEDIES[status]}")
        raise _Refusal(why)

    def _reply(self, content: bytes) -> Reply:
        if len(content) > MOST_BYTES:
            raise BrokenAnswer(f"an answer of more than {MOST_BYTES:,} bytes")
        try:
            choice = json.loads(content)["choices"][0]
            text, cut = choice["message"]["content"], choice.get("finish_reason") == "length"
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise BrokenAnswer(f"what came is no chat completion: {self._said_by(content)}") from None
        if not isinstance(text, str) or not text.strip():
            raise BrokenAnswer("the answer is empty" + (", cut off at max_tokens" if cut else ""))
        return Reply(text.replace(self._key, "***") if self._key else text, cut)

    def _said_by(self, content: bytes) -> str:
        """What an answer says of an error: OpenAI's `error.message`, or how the content begins."""
        text = content.decode("utf-8", errors="replace")
        try:
            error = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, Mapping) else error)
        except (ValueError, TypeError, LookupError, RecursionError):
            pass
        return self._said(text)

    def _said(self, text: str) -> str:
        said = " ".join(redact(text.replace(self._key, "***") if self._key else text).split())
        return (said if len(said) <= MOST_SAID else f"{said[: MOST_SAID - 1]}…") or "it says nothing"


def checked_address(address: str) -> str:
    """The address without a slash at its end. Raises `InputError` for none, and for one that holds a secret."""
    refuse_secret(address, "base_url", f"put the key into ${KEY}")
    try:
        parts = urlsplit(address.strip())
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or brackets that are no IPv6 address
        fits = False
    if not fits or parts.query or parts.fragment or not address.strip().isascii() or len(address.split()) != 1:
        raise InputError(
            f"base_url is {address!r}; give that of a server with OpenAI's chat API, as http://localhost:11434/v1"
        )
    return address.strip().rstrip("/").removesuffix("/chat/completions")


def seconds_of(retry_after: str) -> float | None:
    """The seconds that a `Retry-After` asks for, given as a number or as a date; None for neither."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            at = parsedate_to_datetime(retry_after)
        except (ValueError, TypeError):
            return None
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _key() -> str:
    key = os.environ.get(KEY, "").strip()
    if not all("!" <= character <= "~" for character in key):  # http.client would quote the key in its complaint
        raise InputError(f"${KEY} holds a space, a line end or another character that no key has; set it again")
    return key
