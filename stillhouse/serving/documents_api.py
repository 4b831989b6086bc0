"""`POST /documents` and `DELETE /documents`: changes are searchable from the next request on."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from stillhouse.errors import InputError
from stillhouse.serving.batcher import Ended, QueueFull, TooLate
from stillhouse.serving.errors import Items, Problem
from stillhouse.serving.live_documents import AGAIN, LiveDocuments
from stillhouse.serving.search_api import answer_json
from stillhouse.serving.service import Service, service_of

router = APIRouter()
LONGEST_ID = 1024


class DocumentRequest(BaseModel):
    """A document, which is one passage. It replaces the passage or document with the same id."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: str = Field(max_length=LONGEST_ID)
    title: str = ""
    text: str
    article: str = Field("", description="the article's id; default: the document's own", max_length=LONGEST_ID)


class DeleteRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    ids: Items[str]


# Not `async`: a separate thread waits for the disk and the queue.
@router.post("/documents", summary="Adds or replaces documents")
def add(body: Annotated[DocumentRequest | Items[DocumentRequest], Body()], request: Request) -> Response:
    service, live = _live(request)
    documents = body if isinstance(body, list) else [body]
    service.check_texts([each.text for each in documents], "documents")
    _check_ids(service, [each.id for each in documents])
    for texts in ([each.title for each in documents], [each.article for each in documents]):
        if given := [text for text in texts if text.strip()]:
            service.check_texts(given, "documents")
    put = [
        {"passage_id": each.id, "article_id": each.article or each.id, "title": each.title, "text": each.text}
        for each in documents
    ]
    return _write(service, live, put, [])


@router.delete("/documents", summary="Deletes the documents and passages of `ids`")
def delete_several(body: DeleteRequest, request: Request) -> Response:
    service, live = _live(request)
    _check_ids(service, body.ids)
    return _write(service, live, [], body.ids)


@router.delete("/documents/{id:path}", summary="Deletes a document or passage")
def delete(id: str, request: Request) -> Response:
    service, live = _live(request)
    _check_ids(service, [id])
    return _write(service, live, [], [id])


def _live(request: Request) -> tuple[Service, LiveDocuments]:
    service = service_of(request)
    if service.live is None:
        raise Problem(404, "this service accepts no documents; start it with `--documents FOLDER`")
    return service, service.live


def _check_ids(service: Service, ids: list[str]) -> None:
    service.check_texts(ids, "ids")
    if len(set(ids)) < len(ids):
        raise Problem(422, "an id is given twice; list each id once")
    if any(len(id) > LONGEST_ID for id in ids):
        raise Problem(422, f"an id has more than {LONGEST_ID:,} characters; use a shorter one")


def _write(service: Service, live: LiveDocuments, put: list[dict[str, str]], delete: list[str]) -> Response:
    release = service.shelf.current
    try:
        counts: dict[str, Any] = live.write(service.shelf.open_releases, put, delete, service.batcher.submit)
    except QueueFull as full:
        raise Problem(
            429, f"the queue is full; try again in {full.seconds} s", {"Retry-After": str(full.seconds)}
        ) from None
    except (TimeoutError, TooLate, CancelledError):
        raise Problem(
            504, "the documents could not be encoded in time, and nothing was changed; send fewer at once"
        ) from None
    except Ended:
        raise Problem(503, "the service is shutting down; send the request again", AGAIN) from None
    except InputError as error:
        service.log(f"release {release.name} cannot encode: {error}")
        raise Problem(503, f"release {release.name} cannot answer; the service's log says why") from error
    return answer_json({"release": release.name, "added": len(put), "removed": len(delete), **counts}, release)
