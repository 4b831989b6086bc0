"""A small local server that answers kfp's own client as Kubeflow's API does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from local_server import Asked, local_server

RUN = "6a2f"
DIGEST = "sha256:" + "0" * 64
IMAGE = f"registry.example/stillhouse@{DIGEST}"


DENIED = (
    "PermissionDenied: User 'system:serviceaccount:stillhouse:default' is not authorized with reason:  (request: "
    "&ResourceAttributes{{Namespace:{namespace},Verb:create,Group:pipelines.kubeflow.org,Version:v1beta1,"
    "Resource:{kind},Subresource:,Name:,FieldSelector:nil,LabelSelector:nil,}}): Unauthorized access"
)
NO_IDENTITY = "Request header error: there is no user identity header."


class Refusal(Exception):
    """An error that the server returns instead of an answer: its status and message."""

    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(words)
        self.status, self.content = status, {"error": words, "code": code, "message": words, "details": []}


class UploadRefusal(Refusal):
    """A refused upload: always a bad request, with Go's stack trace in the details."""

    def __init__(self, words: str) -> None:
        super().__init__(400, 3, words)
        trace = "\ngithub.com/kubeflow/pipelines/backend/src/common/util.NewPermissionDeniedError\n\t/go/src/error.go"
        self.content = {"error_message": words, "error_details": words + trace}


@dataclass
class Api:
    """Records requests, keeps pipelines and recurring runs, and returns the states of a run one after another."""

    states: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    recurring: list[dict[str, Any]] = field(default_factory=list)
    kept: list[dict[str, Any]] = field(default_factory=list)
    """The recurring runs on the server."""
    logged: list[str] = field(default_factory=list)
    """The requested changes to runs and recurring runs, in order."""
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    image: str | None = IMAGE
    """The default of the pipelines' parameter `image`."""
    says_all: bool = False
    """Without a namespace, list the pipelines of all namespaces, like a server that keeps them as resources."""
    multi_user: bool = False
    """Only the health check is open to everybody. All other requests need a valid token."""
    valid_token: str = "secret"
    may_create: bool = True
    """Whether the token's account may create runs and pipelines."""
    tokens: set[str] = field(default_factory=set)
    refuse: int = 0
    asked: int = 0
    host: str = ""
    uploaded: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The paths and queries of uploads, of a pipeline or of another version."""

    def keep(self, identifier: str, namespace: str = "", name: str = "refresh") -> None:
        self.pipelines.append({"pipeline_id": identifier, "display_name": name, "namespace": namespace})

    def let_in(self, path: str, token: str) -> None:
        if self.refuse:
            raise Refusal(self.refuse, 0, "no")
        if self.multi_user and not path.endswith("/healthz") and token != f"Bearer {self.valid_token}":
            raise Refusal(401, 16, f"Failed to authorize with API: Unauthenticated: {NO_IDENTITY}: {NO_IDENTITY}")

    def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        if path.endswith("/healthz"):
            return {"multi_user": self.multi_user}
        if path.endswith(f"/runs/{RUN}"):
            state = self.states[min(self.asked, len(self.states) - 1)]
            self.asked += 1
            return {"run_id": RUN} | state
        if path.endswith("/pipelines"):
            [predicate] = json.loads(query["filter"])["predicates"]
            named = [one for one in self.pipelines if one["display_name"] == predicate["stringValue"]]
            place = query.get("namespace", "")
            return {"pipelines": [one for one in named if one["namespace"] == place or (self.says_all and not place)]}
        if path.endswith("/versions"):
            return {"pipeline_versions": [self.version("v2"), self.version("v1")]}
        if path.endswith("/recurringruns"):
            return {"recurringRuns": [{"experiment_id": "e1"} | one for one in self.kept]}
        if path.endswith("/experiments"):
            return {"experiments": [{"experiment_id": "e1", "display_name": "stillhouse"}]}
        return {}

    def version(self, name: str) -> dict[str, Any]:
        default = {} if self.image is None else {"defaultValue": self.image}
        spec = {"root": {"inputDefinitions": {"parameters": {"image": {"parameterType": "STRING"} | default}}}}
        logged = {"pipeline_spec": spec, "platform_spec": {"platforms": {}}}
        return {"display_name": name, "pipeline_version_id": f"id of {name}", "pipeline_spec": logged}

    def change(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """Disables or deletes a recurring run."""
        name, _, action = path.rpartition("/")[2].partition(":")
        [entry] = [one for one in self.kept if one["recurring_run_id"] == name]
        self.logged.append(f"{action or 'delete'} {name} {query.get('propagation_policy', '')}".strip())
        if action:
            entry["status"] = action.upper() + "D"
        else:
            self.kept.remove(entry)
        return {}

    def upload(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        if not self.may_create:
            denied = DENIED.format(namespace=query.get("namespace", "stillhouse"), kind="pipelines")
            raise UploadRefusal(f"Failed to create a pipeline due to authorization error: {denied}")
        self.uploaded.append((path, query))
        if path.endswith("/upload"):
            self.keep("uploaded", query.get("namespace", ""), query["name"])
        return {"pipeline_id": "uploaded", "pipeline_version_id": "uploaded version"}

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if not self.may_create:
            denied = DENIED.format(namespace="stillhouse", kind="runs")
            raise Refusal(403, 7, f"Failed to create a run due to authorization error: {denied}")
        if path.endswith("/recurringruns"):
            self.recurring.append(body)
            return {"recurring_run_id": "r1"}
        self.runs.append(body)
        return {"run_id": RUN, "display_name": body["display_name"]}


@contextmanager
def serve(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Api]:
    known = Api()

    def answer(asked: Asked) -> tuple[int, dict[str, Any]]:
        token = asked.headers.get("authorization", "")
        known.tokens.add(token)
        try:
            known.let_in(asked.path, token)
            return 200, act(asked)
        except Refusal as refusal:
            return refusal.status, refusal.content

    def act(asked: Asked) -> dict[str, Any]:
        if asked.method == "GET":
            return known.get(asked.path, asked.query)
        if asked.method == "DELETE":
            return known.change(asked.path, asked.query)
        if "/upload" in asked.path:
            return known.upload(asked.path, asked.query)
        return known.change(asked.path, {}) if ":" in asked.path else known.post(asked.path, asked.content)

    monkeypatch.setenv("HOME", str(home))
    for name in ("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_SA_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    with local_server(answer) as known.host:
        yield known
