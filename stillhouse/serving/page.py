"""The search page and the list of endpoints: server-side HTML, without scripts or external requests."""

import re
from bisect import bisect_right
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from stillhouse.core.pages import SECURE_HEADERS, page_template
from stillhouse.corpus.words import WORD, is_unspaced, terms_in
from stillhouse.serving.errors import Problem
from stillhouse.serving.guard import bearer, for_browser, same_token
from stillhouse.serving.release import Ranked
from stillhouse.serving.search_api import RELEASE, hits
from stillhouse.serving.service import Served, Service


class PageRoute(APIRoute):
    """Answers only browsers; programs get 404."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if for_browser(scope) else (Match.NONE, {})


router = APIRouter(route_class=PageRoute, include_in_schema=False)
HEADERS = SECURE_HEADERS | {"Referrer-Policy": "no-referrer"}
PAGE, DOCS = (Path(__file__).with_name(name) for name in ("page.html", "docs.html"))
COOKIE = "stillhouse_token"
SHORTEST_MATCH = 3
"""The fewest letters of a query word for it to be marked where it begins a word of the passage."""
MOST_SHOWN = 100
ASCII_WORD = re.compile(r"(\w+)")
"""`WORD` for texts in ASCII, which takes half the time."""


@router.get("/")
async def form(service: Served) -> Response:
    return _page(service)


@router.post("/")
async def answer(request: Request, service: Served) -> Response:
    try:
        text = (await request.body()).decode("utf-8")
        fields = {name: values[0] for name, values in parse_qs(text, max_num_fields=16).items()}
    except ValueError:
        return _page(service, status=422, error="the form could not be read; send it again from this page")
    token = fields.get("token", "")
    given = token or request.cookies.get(COOKIE, "") or bearer(request.headers)
    if service.token and not same_token(given, service.token):
        return _page(service, status=401, error="the token is wrong or missing; type it and ask again")
    query, top = fields.get("query", ""), fields.get("top", "")
    try:
        release, found = await _found(service, query, top)
        service.note(release, query, found)
    except Problem as problem:
        return _page(service, status=problem.status_code, error=problem.detail, query=query)
    response = _page(service, query=query, top=top or 10, hits=found)
    if token:
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
    return response


async def _found(service: Service, query: str, top: str) -> tuple[str, list[dict[str, Any]]]:
    """The name of the release in use, and the passages that it finds, with their texts in parts."""
    if not re.fullmatch(r"[0-9]{0,4}", top) or not 1 <= int(top or 10) <= MOST_SHOWN:
        raise Problem(422, f"ask for 1 to {MOST_SHOWN} passages")
    release, how = service.releases.current, Ranked(int(top or 10))
    [found] = await service.search(release, [query], how)
    shown = hits(release, found, texts=True, by_document=release.by_document(how))
    return release.name, [hit | {"parts": matches(hit["text"], query)} for hit in shown]


def matches(text: str, query: str) -> list[tuple[bool, str]]:
    """The text in parts, with whether each is a word that begins with a word of the query.

    In scripts without spaces between words, two neighbouring characters of the query are such a word.
    """
    words = {term for term in terms_in(query) if len(term) >= SHORTEST_MATCH or is_unspaced(term)}
    lengths = sorted({len(word) for word in words})
    spaced = text.isascii()
    found = (ASCII_WORD if spaced else WORD).split(text)
    parts: list[tuple[bool, str]] = []
    pair_before = False
    # Each word of the text is looked up, since a pattern of all query words would try them one by one.
    for number, part in enumerate(found):
        marked = False
        if number % 2 and not spaced and is_unspaced(part):
            pair = number + 2 < len(found) and not found[number + 1] and part + found[number + 2] in words
            marked, pair_before = pair or pair_before, pair
        elif number % 2:
            lower = part.lower()
            marked = any(lower[:length] in words for length in lengths[: bisect_right(lengths, len(lower))])
        if part and parts and marked == parts[-1][0] and (not marked or is_unspaced(part)):
            parts[-1] = marked, parts[-1][1] + part
        elif part:
            parts.append((marked, part))
    return parts or [(False, text)]


def _page(service: Service, status: int = 200, **shown: Any) -> HTMLResponse:
    current = service.releases.current
    defaults = {
        "query": "",
        "top": 10,
        "hits": None,
        "error": "",
        "in_use": current.name,
        "passages": len(current.passages),
        "longest": service.limits.characters,
        "most": min(MOST_SHOWN, service.limits.top),
        "token_wanted": bool(service.token),
    }
    # Text from a client may contain lone surrogates.
    content = page_template(PAGE).render(defaults | shown).encode("utf-8", errors="replace")
    return HTMLResponse(content, status, HEADERS | {RELEASE: current.name})


@router.get("/docs")
async def addresses(request: Request) -> Response:
    about = request.app.openapi()
    page = page_template(DOCS).render(about=about, schemas=about["components"]["schemas"])
    return HTMLResponse(page, headers=HEADERS)
