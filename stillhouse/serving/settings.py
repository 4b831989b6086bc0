"""The limits of a service: how much at once, how long, how large."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`waiting`: texts in the queue. `batch_tokens`: tokens computed at once. `inputs`: texts per request for vectors
    or scores, computed `texts` at a time. Times are seconds, `body` is bytes.
    """

    waiting: int = 1024
    batch_tokens: int = 2048
    deadline: float = 10.0
    texts: int = 256
    inputs: int = 2048
    characters: int = 8192
    top: int = 1000
    body: int = 4 << 20
