"""A fake Kubeflow client, and the error of an API server that refuses a request."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from kfp_server_api import ApiException

from stillhouse.kubeflow.pipelines.schedules.apply import MARK


def refusal(status: int, body: str) -> Exception:
    error = ApiException(status=status, reason="Bad Request")
    error.body = body
    return error


class Client:
    """The methods of kfp's client that the project uses. Lists come in pages, as from the server."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.pipelines = [("p1", "refresh", "")]

    def list_recurring_runs(self, page_token: str = "", page_size: int = 10, namespace: str | None = None) -> Any:
        entries = [
            SimpleNamespace(
                recurring_run_id=str(n), display_name=f"r{n}", description=MARK, status="ENABLED", experiment_id="e1"
            )
            for n in range(3)
        ]
        return self._page(entries, page_token, "recurring_runs")

    def list_runs(self, page_token: str = "", page_size: int = 10, namespace: str | None = None) -> Any:
        entries = [
            SimpleNamespace(run_id=str(n), display_name=f"x{n}", state=state, recurring_run_id=None, state_history=None)
            for n, state in enumerate((None, "RUNNING", "FAILED"))
        ]
        return self._page(entries, page_token, "runs")

    def _page(self, entries: list[Any], token: str, field: str) -> Any:
        at = int(token or 0)
        more = str(at + 1) if at + 1 < len(entries) else None
        return SimpleNamespace(**{field: entries[at : at + 1] or None, "next_page_token": more})

    def create_experiment(self, name: str, namespace: str | None = None) -> Any:
        return SimpleNamespace(experiment_id=f"experiment {name}")

    def list_experiments(self, namespace: str | None = None, filter: str = "") -> Any:
        return SimpleNamespace(experiments=[SimpleNamespace(experiment_id="e1")])

    def list_pipelines(self, filter: str, namespace: str | None = None) -> Any:
        name = json.loads(filter)["predicates"][0]["stringValue"]
        entries = [
            SimpleNamespace(pipeline_id=identifier, namespace=place)
            for identifier, called, place in self.pipelines
            if called == name and place == (namespace or "")
        ]
        return SimpleNamespace(pipelines=entries or None)

    def list_pipeline_versions(self, pipeline: str, page_token: str, page_size: int, sort_by: str) -> Any:
        version = SimpleNamespace(display_name="v1", pipeline_version_id="id1", pipeline_spec={})
        return SimpleNamespace(pipeline_versions=[version], next_page_token=None)

    def create_recurring_run(self, **named: Any) -> Any:
        self.calls.append(("create", named))
        return SimpleNamespace(recurring_run_id="new")
