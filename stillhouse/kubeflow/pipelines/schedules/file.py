"""The file with the schedules and watches of a cluster.

experiment: retraining
service_account: stillhouse-steps  # for every run's pods; an entry may name another
schedules:
  nightly:
    pipeline: refresh
    cron: "0 0 3 * * *"          # seconds minutes hours day month weekday
    parameters:
      releases: https://git.example/search/releases.git
      image: registry.example/stillhouse@sha256:DIGEST
watches:
  articles:
    pipeline: refresh
    releases: https://git.example/search/releases.git
    repo: https://git.example/search/articles.git
    path: corpus
    parameters: {image: registry.example/stillhouse@sha256:DIGEST}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json
from stillhouse.core.config import read_as
from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import refuse_secret
from stillhouse.core.yaml_file import read_yaml

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
REFRESH = "refresh"
"""The pipeline that records refusals, and has a parameter `again`."""
Parameter = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A recurring run: a pipeline (`version` "" = its newest), a cron line with six fields, and parameters.

    Its pods run as `service_account` ("" = the default of Kubeflow Pipelines).
    """

    name: str
    pipeline: str
    cron: str
    version: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    enabled: bool = True
    service_account: str = ""

    def __post_init__(self) -> None:
        if len(self.cron.split()) == 5:
            raise InputError(f"cron {self.cron!r} must have six fields; put the seconds first, `0 ` before it")
        _refuse_secrets(self.parameters)

    @property
    def digest(self) -> str:
        """The digest of all that Kubeflow gets; a change makes a new recurring run, since existing ones are fixed."""
        content = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "enabled"}
        return digest_json(content | {"parameters": dict(self.parameters)})[:10]


@dataclass(frozen=True, kw_only=True)
class Watch:
    """A path in a DVC repository (`revision` "" = its default branch), and the pipeline that refreshes `releases`.

    A failed run is started again until there were this many `attempts`: Kubeflow gives up a run if one of its pods was
    preempted or evicted, and the next run continues from the last checkpoint.
    """

    name: str
    pipeline: str
    releases: str
    repo: str
    path: str
    revision: str = ""
    branch: str = ""
    version: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    service_account: str = ""
    attempts: int = 2

    def __post_init__(self) -> None:
        _refuse_secrets(self.parameters)
        if not 1 <= self.attempts <= 10:
            raise InputError(f"attempts must be from 1 to 10, not {self.attempts}")
        refuse_secret(self.releases, "releases")
        refuse_secret(self.repo, "repo")
        own = {"releases", "branch", "repo", "revision", "source"} & set(self.parameters)
        if own:
            raise InputError(f"the parameter {min(own)!r} is set by the watch itself; leave it out of `parameters`")

    def run_parameters(self, revision: str, *, again: bool = False) -> dict[str, Parameter]:
        """The parameters of a run for a revision of the corpus; `again` retries what was refused before."""
        content: dict[str, Parameter] = {"releases": self.releases, "repo": self.repo, "source": self.path}
        content |= {"revision": revision} | ({"branch": self.branch} if self.branch else {})
        return dict(self.parameters) | content | ({"again": True} if again and self.pipeline == REFRESH else {})


@dataclass(frozen=True, kw_only=True)
class Schedules:
    """The content of a file. `watches` is None if it has no such entry, not even an empty one."""

    experiment: str = "stillhouse"
    service_account: str = ""
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    watches: Mapping[str, Watch] | None = None

    def __post_init__(self) -> None:
        for name in (*self.schedules, *(self.watches or ())):
            if not NAME.fullmatch(name):
                raise InputError(f"{name}: a name has at most 42 lowercase letters, digits and dashes")


def read_schedules(path: Path) -> Schedules:
    """Reads and checks a file. Raises `InputError`, which names the wrong entry and the problem."""
    try:
        content = read_yaml(path) or {}
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; docs/releases.md describes its format") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} must map `schedules` and `watches` to entries")
    own = {"service_account": content.get("service_account", "")}
    for part in content.keys() & {"schedules", "watches"}:
        rows = content[part] or {}
        if isinstance(rows, dict):
            content[part] = {
                name: own | row | {"name": str(name)} if isinstance(row, dict) else row for name, row in rows.items()
            }
    return read_as(Schedules, content, str(path))


def _refuse_secrets(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        if "://" in str(value):
            refuse_secret(str(value), f"the parameter {name!r}")
