"""What the endpoints share: the releases, the queue, the limits, and how a client's question becomes a job."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, cast

import numpy as np
from fastapi import Depends, Request
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.search.vector_index import cut
from stillhouse.serving.batcher import Batcher, Embedded, Ended, Job, QueueFull, TooLate
from stillhouse.serving.errors import Problem
from stillhouse.serving.metrics import Metrics
from stillhouse.serving.open_releases import OpenReleases
from stillhouse.serving.query_log import QueryLog
from stillhouse.serving.release import Found, Ranked, Release
from stillhouse.serving.settings import Limits

Role = Literal["query", "passage"]
ROLES: dict[str, Role] = {
    "query": "query",
    "search_query": "query",
    "passage": "passage",
    "document": "passage",
    "search_document": "passage",
}
"""What the clients of OpenAI, Cohere, NVIDIA, Voyage and sentence-transformers call the roles."""


@dataclass(frozen=True)
class Service:
    """What one process serves, and how.

    `log_requests` logs a line per request. `queries` is the query log; nothing else stores queries.
    """

    releases: OpenReleases
    batcher: Batcher
    limits: Limits
    metrics: Metrics
    log: Callable[[str], None]
    token: str = ""
    model: str = "retriever"
    log_requests: bool = False
    queries: QueryLog | None = None

    def check_texts(self, texts: Sequence[str], what: str, most: int | None = None) -> None:
        """Raises `Problem` for texts that are too many, too long, empty, or not valid Unicode.

        `most` is the number of texts allowed; None = `limits.texts`.
        """
        limits = self.limits
        most = limits.texts if most is None else most
        if not texts:
            raise Problem(422, f"{what} is empty; give at least one text")
        if len(texts) > most:
            raise Problem(413, f"{what} has {len(texts):,} texts, at most {most:,} are allowed; split them")
        for text in texts:
            if len(text) > limits.characters:
                raise Problem(413, f"a text of {what} has more than {limits.characters:,} characters; shorten it")
            if not text.strip():
                raise Problem(422, f"a text of {what} is empty; leave it out")
            if not is_unicode(text):
                raise Problem(422, f"a text of {what} is not valid Unicode: it has half of a surrogate pair")

    def check_model(self, name: str) -> None:
        """Raises `Problem` for another model's name, so that no client mistakes these vectors for another model's."""
        if name not in (self.model, self.releases.current.name):
            raise Problem(404, f"the model {name[:80]!r} is not served here; its name is {self.model!r}")

    async def embed(self, release: Release, texts: Sequence[str], role: str, what: str) -> Embedded:
        """Vectors of texts, once it is their turn."""
        self.check_texts(texts, what, self.limits.inputs)
        made = [cast(Embedded, await self._answer(Job(release, part, role))) for part in self._parts(texts)]
        return Embedded(np.concatenate([part.vectors for part in made]), sum(part.tokens for part in made))

    async def search(self, release: Release, texts: Sequence[str], how: Ranked) -> list[Found]:
        """The passages of each query."""
        self.check_texts(texts, "queries")
        if how.top > self.limits.top:
            raise Problem(422, f"top is {how.top}, but may be at most {self.limits.top}")
        if how.bm25 and not release.has_bm25:
            raise Problem(422, f"release {release.name} holds no BM25 index; leave `bm25` out, or give 0")
        job = Job(release, texts, "query", [how] * len(texts))
        return cast("list[Found]", await self._answer(job))

    def note(self, release: str, query: str, hits: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Logs an answered query, if there is a log: {"query_id": …}."""
        if self.queries is None:
            return {}
        return {"query_id": self.queries.note(release, query, [(hit["passage_id"], hit["score"]) for hit in hits])}

    async def rerank(self, release: Release, query: str, texts: Sequence[str], what: str) -> tuple[list[float], int]:
        """The cross-encoder's score of the query with each text, and the number of tokens read."""
        if not release.reranks:
            raise Problem(404, f"release {release.name} has no cross-encoder, which re-ranking needs; use `/search`")
        self.check_texts([query], "query")
        self.check_texts(texts, what, self.limits.inputs)
        scores: list[float] = []
        tokens = 0
        for part in self._parts(texts):
            found, read = await self._answer(Job(release, part, alone=partial(release.score_pairs, query, part)))
            scores += found
            tokens += read
        return scores, tokens

    async def alone(self, release: Release, texts: Sequence[str], compute: Callable[[], Any]) -> Any:
        """The result of a function that is called by itself, between two batches."""
        return await self._answer(Job(release, texts, alone=compute))

    def _parts(self, texts: Sequence[str]) -> list[Sequence[str]]:
        """The texts in parts of at most `limits.texts`. Between two parts, others get their turn."""
        return [texts[begin : begin + self.limits.texts] for begin in range(0, len(texts), self.limits.texts)]

    async def _answer(self, job: Job) -> Any:
        deadline = self.limits.deadline
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.batcher.submit(job)), deadline)
        except QueueFull:
            raise Problem(429, "the queue is full; try again in a second", {"Retry-After": "1"}) from None
        except (TooLate, TimeoutError):
            raise Problem(
                504, f"there was no answer within {deadline:g} s; send fewer texts at once, or try again later"
            ) from None
        except Ended:
            raise Problem(503, "the service is shutting down; send the request again", {"Retry-After": "1"}) from None
        except InputError as error:
            self.log(f"release {job.release.name} cannot answer: {error}")  # not for clients: it may contain a path
            raise Problem(503, f"release {job.release.name} cannot answer; the service's log says why") from error


async def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


Served = Annotated[Service, Depends(service_of)]
"""The parameter of an endpoint that gets the service."""


def role_of(name: object, what: str) -> Role:
    """The role that a client's field `what` names, in upper or lower case; None = a query.

    Raises `Problem` for any other name.
    """
    if name is None:
        return "query"
    role = ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise Problem(422, f"{what} is {str(name)[:40]!r}, but must be one of {', '.join(ROLES)}")
    return role


def resized(vectors_QD: NDArray[np.float32], width: int | None, normalize: bool) -> NDArray[np.float32]:
    """The first `width` dimensions, of length 1 with `normalize`. Raises `Problem` if there are fewer."""
    if width is None:
        return vectors_QD
    if not 1 <= width <= vectors_QD.shape[1]:
        raise Problem(422, f"dimensions is {width}, but must be between 1 and {vectors_QD.shape[1]}")
    return cut(vectors_QD, width, normalize)
