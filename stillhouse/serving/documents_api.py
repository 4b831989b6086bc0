"""`/documents` adds documents to the store of a service, or deletes them there."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field

from stillhouse.core.errors import InputError
from stillhouse.serving.errors import Items, Problem, Strict
from stillhouse.serving.release import StoreRelease
from stillhouse.serving.search_api import answer_json
from stillhouse.serving.service import Served, Service
from stillhouse.serving.stores.store import rows_of

router = APIRouter()


class Document(Strict):
    """One passage; it replaces that with the same id."""

    passage_id: str = Field(min_length=1, max_length=1024)
    text: str
    title: str = ""
    article_id: str = ""
    section: str = ""
    fields: dict[str, Any] = Field(default_factory=dict)


class Added(Strict):
    documents: Items[Document]


class Deleted(Strict):
    passage_ids: Items[str]


@router.post("/documents", summary="New documents, searchable once this is answered; only with a store")
async def add(body: Added, service: Served) -> Response:
    release = _release_of(service)
    documents = [document.model_dump() for document in body.documents]
    texts = [document["text"] for document in documents]
    service.check_texts(texts, "documents")
    try:
        rows_of(documents)
    except InputError as error:
        raise Problem(422, str(error)) from None
    await service.alone(release, texts, partial(release.searcher.add, documents))
    return answer_json({"added": len(texts)}, release)


@router.delete("/documents", summary="Deletes documents; ids that are unknown are ignored")
async def delete(body: Deleted, service: Served) -> Response:
    release = _release_of(service)
    service.check_texts(body.passage_ids, "passage_ids")
    await service.alone(release, body.passage_ids, partial(release.searcher.delete, body.passage_ids))
    return answer_json({"deleted": len(body.passage_ids)}, release)


def _release_of(service: Service) -> StoreRelease:
    release = service.releases.current
    if not isinstance(release, StoreRelease) or not service.token:
        raise Problem(
            404,
            "this service takes no documents; start it with `--store` and set $STILLHOUSE_SERVE_TOKEN, so that not "
            "everybody can change them",
        )
    return release
