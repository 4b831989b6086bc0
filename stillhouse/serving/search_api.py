"""`POST /search` ranks passages for queries; `POST /feedback` takes what people thought of them."""

import json
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from stillhouse.core.errors import InputError, is_full_disk
from stillhouse.corpus.fields import checked
from stillhouse.serving.errors import Items, Problem, Strict
from stillhouse.serving.query_log import SHOWN
from stillhouse.serving.release import Found, Ranked, Release, StoreRelease
from stillhouse.serving.service import Served

router = APIRouter()
RELEASE = "X-Stillhouse-Release"
"""The header of every answer that names its release."""


class Filter(Strict):
    """Restricts which passages can be found."""

    fields: dict[str, Any] = Field(
        {},
        description="conditions on the passages' fields, all of which must hold: a value, a list of which the field "
        "has one, or an object with `gte`, `gt`, `lte`, `lt` or `not`; a passage without the field meets none",
        examples=[{"product": "vpn", "language": ["de", "fr"], "date": {"gte": "2024-01-01", "lt": "2025-01-01"}}],
    )


class SearchRequest(Strict):
    """Give either `query`, or `queries` for several at once."""

    query: str | None = Field(None, description="one question")
    queries: Items[str] | None = Field(None, description="several questions")
    top: int = Field(10, ge=1, description="how many passages or documents")
    filter: Filter = Field(default_factory=lambda: Filter.model_validate({}))
    bm25: float | None = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="BM25's weight in the ranking: 0 = only the retriever, 1 = only BM25; default: the weight that "
        "ranked best when the release was made",
    )
    documents: bool | None = Field(
        None,
        description="true: each document once, with its best passage; default: if passages were split or qrels name "
        "documents",
    )
    texts: bool = Field(True, description="false: only ids and scores")


class Hit(BaseModel):
    rank: int
    score: float
    passage_id: str
    title: str | None = None
    text: str | None = None
    fields: dict[str, Any] | None = Field(None, description="other fields of the passage")
    document_id: str | None = Field(None, description="only if each document is listed once")
    section: str | None = Field(None, description="likewise, with texts")


class Answer(BaseModel):
    query: str
    query_id: str | None = Field(None, description="the id to give to `/feedback`; only with a query log")
    hits: list[Hit]


class SearchAnswer(BaseModel):
    release: str
    answers: list[Answer]


@router.post("/search", summary="Ranked passages for queries", response_model=SearchAnswer)
async def search(body: SearchRequest, service: Served) -> Any:
    if (body.query is None) == (body.queries is None):
        raise Problem(422, "give either `query` or `queries`")
    queries = body.queries if body.queries is not None else [body.query or ""]
    release = service.releases.current
    if body.filter.fields and isinstance(release, StoreRelease):
        raise Problem(422, "a service that searches in a store has no filters; leave `filter` out, or ask the store")
    try:
        checked(release.passages.field_types, body.filter.fields)
    except InputError as error:
        raise Problem(422, f"filter.fields: {error}") from None
    where = json.dumps(body.filter.fields, sort_keys=True) if body.filter.fields else ""
    how = Ranked(body.top, body.bm25, where, body.documents)
    found = await service.search(release, queries, how)
    answers = []
    for query, each in zip(queries, found):
        shown = hits(release, each, body.texts, release.by_document(how))
        answers.append({"query": query, **service.note(release.name, query, shown), "hits": shown})
    return answer_json({"release": release.name, "answers": answers}, release)


class FeedbackRequest(Strict):
    """Feedback on one passage of one answer of `/search`."""

    query_id: str = Field(description="the id in the answer", max_length=64)
    passage_id: str = Field(description=f"one of the first {SHOWN} of that answer", max_length=1024)
    kind: Literal["click", "relevant", "not_relevant"]


# Not `async`: a separate thread waits for the disk, so no search has to.
@router.post("/feedback", summary="A click on a passage, or a judgement of it")
def feedback(body: FeedbackRequest, service: Served) -> Response:
    if service.queries is None:
        raise Problem(404, "this service keeps no query log; start it with `--log-queries FOLDER`")
    asked = service.queries.find(body.query_id)
    if asked is None:
        raise Problem(404, f"there is no query {body.query_id!r} in the log; it is unknown or too old for feedback")
    if body.passage_id not in asked.passage_ids:
        raise Problem(404, f"the passage {body.passage_id[:80]!r} was not among the first {SHOWN} of that answer")
    try:
        service.queries.judge(asked, body.passage_id, body.kind)
    except OSError as error:
        service.log(f"feedback cannot be written: {error}")
        status = 507 if is_full_disk(error) else 503
        raise Problem(status, "the feedback cannot be saved; the service's log says why") from None
    return answer_json({"query_id": asked.query_id, "taken": True}, service.releases.current)


def hits(release: Release, found: Found, texts: bool, by_document: bool) -> list[dict[str, Any]]:
    """The passages of a ranking with the columns to show, best first."""
    columns = ("passage_id", "title", "text", *["section"] * by_document) if texts else ("passage_id",)
    passages = release.passages.at(found.rows, *columns)
    if texts:
        for passage, fields in zip(passages, release.passages.fields_at(found.rows)):
            passage["fields"] = fields
    if by_document:
        for passage, document in zip(passages, release.passages.documents_of(found.rows)):
            passage["document_id"] = document
    return [
        {"rank": rank, "score": score, **passage}
        for rank, (score, passage) in enumerate(zip(found.scores, passages), 1)
    ]


def answer_json(content: Any, release: Release) -> Response:
    """A JSON answer with its release in a header too."""
    return JSONResponse(content, headers={RELEASE: release.name})
