"""`POST /feedback`: what people thought of a passage that was shown to them."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from stillhouse.errors import is_full_disk
from stillhouse.serving.errors import Problem
from stillhouse.serving.query_log import SHOWN
from stillhouse.serving.search_api import answer_json
from stillhouse.serving.service import service_of

router = APIRouter()


class FeedbackRequest(BaseModel):
    """Feedback on one passage of one answer of `/search`."""

    model_config = ConfigDict(extra="forbid", strict=True)
    query_id: str = Field(description="the id in the answer", max_length=64)
    passage_id: str = Field(description=f"one of the first {SHOWN} of that answer", max_length=1024)
    kind: Literal["click", "relevant", "not_relevant"]


# Not `async`: a separate thread waits for the disk, so no search has to.
@router.post("/feedback", summary="A click on a passage, or a judgement of it")
def feedback(body: FeedbackRequest, request: Request) -> Response:
    service = service_of(request)
    if service.queries is None:
        raise Problem(404, "this service keeps no query log; start it with `--log-queries FOLDER`")
    asked = service.queries.find(body.query_id)
    if asked is None:
        raise Problem(404, f"there is no query {body.query_id!r} in the log; it is unknown or too old for feedback")
    if body.passage_id not in asked.passage_ids:
        raise Problem(404, f"the passage {body.passage_id[:80]!r} was not among the first {SHOWN} of that answer")
    try:
        service.queries.judge(asked, body.passage_id, body.kind, service.client_of(request))
    except OSError as error:
        service.log(f"feedback cannot be written: {error}")
        status = 507 if is_full_disk(error) else 503
        raise Problem(status, "the feedback cannot be saved; the service's log says why") from None
    return answer_json({"query_id": asked.query_id, "taken": True}, service.shelf.current)
