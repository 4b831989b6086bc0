"""A cluster in memory that follows Kubeflow's rules for recurring runs, and a schedule for it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.schedules.apply import apply
from stillhouse.kubeflow.pipelines.schedules.file import Parameter, Schedule


class Memory:
    """A cluster that keeps Kubeflow's rules: names are not unique, and a recurring run cannot be changed."""

    def __init__(self) -> None:
        self.recurring: dict[str, Any] = {}
        self.started: dict[str, Any] = {}
        self.parameters: dict[str, Mapping[str, Parameter]] = {}
        self.refused: set[str] = set()
        self._ids = map(str, itertools.count(1))

    def known_experiment(self) -> str:
        return "e1"

    def recurring_runs(self) -> list[Any]:
        return list(self.recurring.values())

    def runs(self) -> list[Any]:
        return list(self.started.values())

    def version_of(self, pipeline: str, version: str) -> Any:
        return SimpleNamespace(display_name=version or "v1", pipeline_spec=None)

    def create(self, schedule: Schedule, name: str, description: str) -> str:
        if schedule.name in self.refused:
            raise InputError("Kubeflow Pipelines refuses the recurring run (400): the cron is none")
        number = next(self._ids)
        entry = {"recurring_run_id": number, "display_name": name, "description": description, "experiment_id": "e1"}
        self.recurring[number] = SimpleNamespace(**entry, status="")
        self.set_enabled(number, schedule.enabled)
        return number

    def set_enabled(self, recurring: str, enabled: bool) -> None:
        self.recurring[recurring].status = "ENABLED" if enabled else "DISABLED"

    def delete(self, recurring: str) -> None:
        del self.recurring[recurring]

    def start(
        self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter], service_account: str
    ) -> str:
        number = next(self._ids)
        self.started[number] = SimpleNamespace(run_id=number, display_name=name, state=None)
        self.parameters[number] = parameters
        return number

    def finish(self, run: str, state: str = "SUCCEEDED") -> None:
        self.started[run].state = state

    @property
    def enabled(self) -> list[str]:
        return sorted(entry.display_name for entry in self.recurring_runs() if entry.status == "ENABLED")


def schedule(name: str = "nightly", **changes: Any) -> Schedule:
    return Schedule(**{"name": name, "pipeline": "refresh", "cron": "0 0 3 * * *"} | changes)


def actions(schedules: list[Schedule], cluster: Any, **more: bool) -> list[str]:
    """Apply schedules to a cluster, and return what changed there."""
    return [action for action, _ in apply(schedules, cluster, **more)]
