"""A cluster in memory that follows Kubeflow's rules for recurring runs, and a schedule for it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.schedules.cluster import Recurring, Run, Version
from stillhouse.kubeflow.pipelines.schedules.file import Parameter, Schedule


class Memory:
    """A cluster that keeps Kubeflow's rules: names are not unique, and a recurring run cannot be changed."""

    def __init__(self) -> None:
        self.recurring: dict[str, tuple[Recurring, Schedule | None]] = {}
        self.started: dict[str, Run] = {}
        self.parameters: dict[str, Mapping[str, Parameter]] = {}
        self.accounts: dict[str, str] = {}
        self.newest = "v1"
        self.image: str | None = None
        self.refused: set[str] = set()
        self._ids = map(str, itertools.count(1))

    def known_experiment(self) -> str:
        return "e1"

    def recurring_runs(self) -> list[Recurring]:
        return [entry for entry, _ in self.recurring.values()]

    def runs(self) -> list[Run]:
        return list(self.started.values())

    def version_of(self, pipeline: str, version: str) -> Version:
        if version == "nowhere":
            raise InputError("the pipeline has no version 'nowhere'")
        return Version(version or self.newest, self.image)

    def create(self, schedule: Schedule, name: str, description: str) -> str:
        if schedule.name in self.refused:
            raise InputError("Kubeflow Pipelines refuses the recurring run (400): the cron is none")
        number = next(self._ids)
        self.recurring[number] = (Recurring(number, name, description, schedule.enabled, "e1"), schedule)
        return number

    def set_enabled(self, recurring: str, enabled: bool) -> None:
        entry, schedule = self.recurring[recurring]
        self.recurring[recurring] = (replace(entry, enabled=enabled), schedule)

    def delete(self, recurring: str) -> None:
        del self.recurring[recurring]

    def start(
        self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter], service_account: str
    ) -> str:
        number = next(self._ids)
        self.started[number] = Run(number, name, "PENDING")
        self.parameters[number] = parameters
        self.accounts[number] = service_account
        return number

    def terminate(self, run: str, minutes_ago: float | None = 0.0) -> None:
        """Terminate a run. Kubeflow records the time a little later (`None`: not yet), and Argo may never end it."""
        old = self.started[run]
        moment = None if minutes_ago is None else datetime.now(UTC) - timedelta(minutes=minutes_ago)
        self.started[run] = Run(old.id, old.name, "CANCELING", old.recurring, moment)

    def finish(self, run: str, state: str = "SUCCEEDED") -> None:
        old = self.started[run]
        self.started[run] = Run(old.id, old.name, state)

    @property
    def enabled(self) -> list[str]:
        return sorted(entry.name for entry in self.recurring_runs() if entry.enabled)


def schedule(name: str = "nightly", **changes: Any) -> Schedule:
    return Schedule(**{"name": name, "pipeline": "refresh", "cron": "0 0 3 * * *"} | changes)


def actions(changes: list[Any]) -> list[str]:
    return [change.action for change in changes]
