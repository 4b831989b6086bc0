"""The limits of a service: how much at once, how long, how large."""

from dataclasses import dataclass

from stillhouse.core.config import setting


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Times are seconds, `body` is bytes; texts of one request are computed `texts` at a time."""

    waiting: int = setting(1024, "texts in the queue; beyond that, requests get 429 with Retry-After", minimum=1)
    batch_tokens: int = setting(2048, "tokens computed at once", minimum=1)
    deadline: float = setting(
        10.0, "seconds that a request, or each part of a large one, may take before it gets 504", minimum=1e-3
    )
    texts: int = setting(
        256, "queries or documents per request; more texts for vectors or scores are computed in parts", minimum=1
    )
    inputs: int = setting(2048, "texts per request for vectors or scores", minimum=1)
    characters: int = setting(8192, "characters per text", minimum=1)
    top: int = setting(1000, "passages per query", minimum=10)
    body: int = setting(4 << 20, "bytes of a request", minimum=1)
