"""A small local server that answers the real Kubernetes client as an API server does, for reads only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from local_server import local_server

NAMESPACE = "stillhouse"
HERE = f"/api/v1/namespaces/{NAMESPACE}"
Plain = dict[str, Any]


@dataclass
class Kubernetes:
    """An API server for lists and logs.

    `objects` holds lists by their paths, and `logs` the logs of pods. `refused` names resources that the account may
    not read, by the last part of a list's path.
    """

    objects: dict[str, list[Plain]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    logs_read: list[str] = field(default_factory=list)
    host: str = ""

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Plain | str]:
        kind = path.rpartition("/")[2]
        if kind in self.refused:
            words = f'{kind} is forbidden: User "me" cannot read resource "{kind}"'
            return 403, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": words}
        if kind == "log":
            pod = path.split("/")[-2]
            self.logs_read.append(pod)
            assert path.startswith(f"{HERE}/pods/") and query["container"] == "main"
            return 200, "".join(self.logs.get(pod, "").splitlines(keepends=True)[-int(query["tailLines"]) :])
        key, _, value = query.get("labelSelector", "").partition("=")
        found = [one for one in self.objects[path] if not key or one["metadata"]["labels"].get(key) == value]
        return 200, {"kind": "List", "apiVersion": "v1", "items": found}


@contextmanager
def serve() -> Iterator[Kubernetes]:
    known = Kubernetes()
    with local_server(lambda asked: known.answer(asked.path, asked.query)) as known.host:
        yield known


def write_kubeconfig(path: Path, host: str) -> Path:
    """Write a kubeconfig of a user of the server at `host`, and return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": host}}],
        "users": [{"name": "me", "user": {"token": "mine"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path
