"""A limit on how long a client may take to send the head of a request.

uvicorn has none: a client that sends a header now and then would hold its connection forever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stillhouse.serving.errors import error_response


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
            answer = error_response("/", 408, message, {"Connection": "close"})
            self._write(h11.Response(status_code=408, headers=answer.raw_headers, reason=b"Request Timeout"))
            self._write(h11.Data(data=bytes(answer.body)))
            self._write(h11.EndOfMessage())
            self.transport.close()

        def _write(self, event: Any) -> None:
            self.transport.write(self.conn.send(event) or b"")

    return BoundedHeads
