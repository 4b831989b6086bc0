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
KUEUE = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}"
WORKFLOWS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/workflows"
Plain = dict[str, Any]


@dataclass
class Kubernetes:
    """An API server for reads.

    `objects` holds lists by their paths. A path that is left out is a kind that the cluster does not have. `logs` holds
    the logs of pods. The log of a container that waits to start is HTTP 400, as in Kubernetes. `refused` names
    resources that the account may not read, by the last part of a list's path.
    """

    objects: dict[str, list[Plain]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    log_trouble: dict[str, int] = field(default_factory=dict)
    """Pods whose log requests fail with a status: 404 for a pod that is gone by then, or 500 for a lost node."""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """The requests in the terms of a role: verb, group and resource."""
    host: str = ""

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Plain | str]:
        listed = path in self.objects
        folder, _, name = (path, "", "") if listed else path.rpartition("/")
        if name == "log":
            folder, _, name = folder.rpartition("/")
            return self._log(folder, name, query)
        kind = folder.rpartition("/")[2]
        group = folder.split("/")[2] if folder.startswith("/apis/") else ""
        self.calls.append(("list" if listed else "get", group, kind))
        if kind in self.refused:
            return 403, status(
                f'{kind} is forbidden: User "me" cannot read resource "{kind}"', "Forbidden", {"kind": kind}
            )
        if folder not in self.objects:
            return 404, "404 page not found\n"
        if listed:
            return 200, self._page(folder, query)
        for one in self.objects[folder]:
            if one["metadata"]["name"] == name:
                return 200, one
        return 404, status(f'{kind} "{name}" not found', "NotFound", {"name": name, "kind": kind})

    def _page(self, folder: str, query: dict[str, str]) -> Plain:
        key, _, value = query.get("labelSelector", "").partition("=")
        found = [one for one in self.objects[folder] if not key or one["metadata"]["labels"].get(key) == value]
        begin, limit = int(query.get("continue", "0")), int(query["limit"])
        more = {"continue": str(begin + limit)} if begin + limit < len(found) else {}
        return {"kind": "List", "apiVersion": "v1", "metadata": more, "items": found[begin : begin + limit]}

    def _log(self, folder: str, pod: str, query: dict[str, str]) -> tuple[int, Plain | str]:
        self.calls.append(("get", "", "pods/log"))
        assert folder == f"{HERE}/pods" and query["container"] == "main"
        trouble = self.log_trouble.get(pod)
        if trouble not in (None, 404):
            return trouble, status("the node does not answer", "InternalError", {})
        found = [one for one in self.objects[folder] if one["metadata"]["name"] == pod]
        if trouble or not found:
            return 404, status(f'pods "{pod}" not found', "NotFound", {"name": pod, "kind": "pods"})
        for container in found[0]["status"].get("containerStatuses", []):
            if container["name"] == "main" and "waiting" in container["state"]:
                why = container["state"]["waiting"]["reason"]
                logged = f'container "main" in pod "{pod}" is waiting to start: {why}'
                return 400, status(logged, "BadRequest", {})
        return 200, "".join(self.logs.get(pod, "").splitlines(keepends=True)[-int(query["tailLines"]) :])


def status(words: str, reason: str, details: Plain) -> Plain:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": words, "reason": reason} | {
        "details": details
    }


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
