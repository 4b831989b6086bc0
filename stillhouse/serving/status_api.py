"""The endpoints for operators: liveness, the release served, and metrics."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from stillhouse import __version__
from stillhouse.serving.metrics import KIND
from stillhouse.serving.search_api import answer_json
from stillhouse.serving.service import Served

router = APIRouter()


@router.get("/", summary="What answers here; browsers get the search page")
async def root(service: Served) -> Response:
    release = service.releases.current
    about = {"service": f"stillhouse {__version__}", "model": service.model, "release": release.name}
    return answer_json(about | {"addresses": "/openapi.json"}, release)


@router.get("/docs", summary="The same as `/openapi.json`; browsers get a page")
async def addresses(request: Request) -> dict[str, Any]:
    return request.app.openapi()


@router.get("/health", summary="Whether the process is alive")
async def health() -> dict[str, str]:
    return {"status": "alive"}


@router.get("/ready", summary="Whether a release is loaded and answers")
async def ready(service: Served) -> Response:
    release = service.releases.current
    return answer_json({"status": "ready", "release": release.name}, release)


@router.get("/info", summary="The release, its digests and figures, and the limits")
async def info(service: Served) -> Response:
    releases = service.releases
    release = releases.current
    content: dict[str, Any] = {
        "service": f"stillhouse {__version__}",
        "model": service.model,
        **release.about(),
        "swaps": releases.swaps,
        "behind_seconds": round(releases.behind, 3),
        "refused": releases.refused,
        "unreachable": releases.unreachable,
        "queries": {"retention_days": service.queries.days} if service.queries else None,
        "limits": asdict(service.limits),
    }
    return answer_json(content, release)


@router.get("/metrics", summary="Figures for Prometheus")
async def metrics(service: Served) -> Response:
    return Response(service.metrics.text(service.releases.current.name), media_type=KIND)
