"""An in-memory Model Registry that follows the published API: v1, v1alpha3, or both.

Names are unique among siblings (409), missing resources give 404, lists are paged with an opaque token that is empty
on the last page, and a change affects only the fields that it names. A body with an unknown field gives 400.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from local_server import Asked, local_server

ROOT = "/api/model_registry/"
PAGE = 2
"""The largest page, whatever size a request asks for, so that a few versions fill several pages."""
RESOURCE = {"customProperties", "description", "externalId", "name", "state"}
ARTIFACT = {
    *("artifactType", "uri", "modelFormatName", "modelFormatVersion", "storageKey", "storagePath"),
    *(f"modelSource{part}" for part in ("Kind", "Class", "Group", "Id", "Name")),
    "serviceAccountName",
}
VALUES = {
    "MetadataStringValue": ("string_value", lambda value: isinstance(value, str)),
    "MetadataDoubleValue": ("double_value", lambda value: isinstance(value, (int, float))),
    "MetadataIntValue": ("int_value", lambda value: re.fullmatch("-?([1-9][0-9]{0,8}|0)", value)),
    "MetadataBoolValue": ("bool_value", lambda value: isinstance(value, bool)),
}

Plain = dict[str, Any]


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RegistryServer:
    """Maps of `models`, `versions` and `artifacts` by id, and `requests`, the method and path of each request.

    `before` is called with each request and may raise `Refused` or delay it. If `token` is set, a request without it
    gets 401.
    """

    def __init__(self) -> None:
        self.models: dict[str, Plain] = {}
        self.versions: dict[str, Plain] = {}
        self.artifacts: dict[str, Plain] = {}
        self.requests: list[str] = []
        self.before: Callable[[str], None] = lambda request: None
        self.token = ""
        self.api_versions = ("v1", "v1alpha3")
        self.address = ""
        self._ids = iter(range(1, 10**6))
        self._lock = threading.Lock()

    @property
    def writes(self) -> list[str]:
        return [request for request in self.requests if not request.startswith("GET")]

    def states(self) -> dict[str, str]:
        return {version["name"]: version["state"] for version in self.versions.values()}

    def serve(self, method: str, path: str, *content: Any) -> tuple[int, Plain]:
        """Return the status and body of the answer to a request for a full path."""
        version, _, rest = path.removeprefix(ROOT).partition("/")
        if not path.startswith(ROOT) or version not in self.api_versions:
            raise Refused(404, "404 page not found")
        return self.answer(method, rest, *content)

    def answer(self, method: str, path: str, query: Plain, body: Plain, authorization: str) -> tuple[int, Plain]:
        request = f"{method} {path}"
        self.requests.append(request)
        self.before(request)
        if self.token and authorization != f"Bearer {self.token}":
            raise Refused(401, "no user identity")
        with self._lock:
            return self._answer(method, path.split("/"), query, body)

    def _answer(self, method: str, words: list[str], query: Plain, body: Plain) -> tuple[int, Plain]:
        match [method, *words]:
            case ["GET", "registered_models"]:
                return 200, self._page(self.models, {}, query)
            case ["GET", "registered_model"]:
                found = [one for one in self.models.values() if one["name"] == query.get("name")]
                if not found:
                    raise Refused(404, "no registered models found")
                return 200, found[0]
            case ["POST", "registered_models"]:
                return 201, self._create(self.models, body, RESOURCE | {"owner", "language"}, {})
            case ["GET", "registered_models", model, "versions"]:
                self._find(self.models, model)
                return 200, self._page(self.versions, {"registeredModelId": model}, query)
            case ["POST", "model_versions"]:
                self._find(self.models, body.get("registeredModelId", ""))
                allowed = RESOURCE | {"author", "registeredModelId"}
                return 201, self._create(self.versions, body, allowed, {"registeredModelId": body["registeredModelId"]})
            case ["PATCH", "model_versions", version]:
                _refuse_unknown(body, (RESOURCE - {"name"}) | {"author"})
                found = self._find(self.versions, version)
                found |= body
                return 200, found
            case ["GET", "model_versions", version, "artifacts"]:
                self._find(self.versions, version)
                return 200, self._page(self.artifacts, {"of": version}, query)
            case ["POST", "model_versions", version, "artifacts"]:
                self._find(self.versions, version)
                if body.get("artifactType") != "model-artifact":
                    raise Refused(400, "invalid artifact type")
                return 201, self._create(self.artifacts, body, RESOURCE | ARTIFACT, {"of": version})
        raise Refused(404, "404 page not found")

    def _create(self, table: dict[str, Plain], body: Plain, allowed: set[str], siblings: Plain) -> Plain:
        _refuse_unknown(body, allowed)
        if not body.get("name"):
            raise Refused(400, "name is required")
        wanted = siblings | {"name": body["name"]}
        if any(wanted.items() <= one.items() for one in table.values()):
            raise Refused(409, f"{body['name']} already exists")
        made = {"state": "LIVE"} | body | siblings | {"id": str(next(self._ids))}
        table[made["id"]] = made
        return made

    def _find(self, table: dict[str, Plain], key: str) -> Plain:
        if key not in table:
            raise Refused(404, f"nothing found for id {key}")
        return table[key]

    def _page(self, table: dict[str, Plain], wanted: Plain, query: Plain) -> Plain:
        if "name" in query:
            wanted = wanted | {"name": query["name"]}
        found = [one for one in table.values() if wanted.items() <= one.items()]
        start, size = int(query.get("nextPageToken", "0")), min(PAGE, int(query.get("pageSize", "20")))
        items = found[start : start + size]
        more = str(start + size) if start + size < len(found) else ""
        return {"items": items, "size": len(items), "pageSize": size, "nextPageToken": more}


def _refuse_unknown(body: Plain, allowed: set[str]) -> None:
    if unknown := body.keys() - allowed:
        raise Refused(400, f"unknown field {sorted(unknown)}")
    if body.get("state", "LIVE") not in ("LIVE", "ARCHIVED"):
        raise Refused(400, f"invalid state {body['state']}")
    for name, value in body.get("customProperties", {}).items():
        key, good = VALUES[value["metadataType"]]
        if value.keys() != {"metadataType", key} or not good(value[key]):
            raise Refused(400, f"invalid property {name}")


@contextmanager
def model_registry() -> Iterator[RegistryServer]:
    served = RegistryServer()

    def answer(asked: Asked) -> tuple[int, Plain]:
        sent = asked.headers.get("Authorization", "")
        try:
            status, content = served.serve(asked.method, asked.path, asked.query, asked.content, sent)
        except Refused as refused:
            status, content = refused.status, {"code": str(refused.status), "message": str(refused)}
        return status, _without_parents(content)

    with local_server(answer) as served.address:
        yield served


def _without_parents(content: Any) -> Any:
    """Return an answer without `of`, the version that an artifact belongs to, which the API does not show."""
    if isinstance(content, dict):
        return {name: _without_parents(value) for name, value in content.items() if name != "of"}
    return [_without_parents(value) for value in content] if isinstance(content, list) else content
