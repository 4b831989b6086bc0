"""What a run's pods need from the cluster: data in the compiled pipeline, completed by the run's parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from stillhouse.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PodKind:
    """Pods with the same requests, and their tasks. Amounts use the notation of Kubernetes.

    `scales_from_zero` says that the cluster adds
    nodes on demand, so that something no node has now may still appear.
    """

    tasks: tuple[str, ...]
    cpu: str
    memory: str
    accelerator: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    """Each has a `key`, and optionally a `value` and `effect` to match."""
    queue: str = ""
    scales_from_zero: bool = False


@dataclass(frozen=True, kw_only=True)
class WantedSecret:
    """A secret's name and the parameter that holds the name.

    The checking task has it as an optional secret: `keys` maps each key to its variable, or it is mounted at `path`.
    """

    parameter: str
    name: str
    optional: bool
    keys: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Everything that a run asks for. `claims` maps parameters to names; all pods share one accelerator setting."""

    pods: tuple[PodKind, ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[WantedSecret, ...] = ()
    accelerator_type: str = ""
    accelerator_count: str = "0"
    """Text, as the user enters it."""

    def to_json(self) -> str:
        """Short JSON without defaults, since the object of the run holds it about ten times."""
        content: dict[str, Any] = {name: value for name, value in asdict(self).items() if value}
        content["pods"] = [_short(pod) for pod in self.pods]
        content["secrets"] = [_short(secret) for secret in self.secrets]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    def with_chosen(self, chosen: Mapping[str, Any]) -> Wanted:
        """A copy with the choices for this run; `chosen` has the pipeline's parameters."""
        return replace(
            self,
            claims={name: str(chosen.get(name, default)) for name, default in self.claims.items()},
            secrets=tuple(replace(one, name=str(chosen.get(one.parameter, one.name))) for one in self.secrets),
            accelerator_type=str(chosen.get("accelerator_type", self.accelerator_type)),
            accelerator_count=str(chosen.get("accelerator_count", self.accelerator_count)),
        )


def _short(part: PodKind | WantedSecret) -> dict[str, Any]:
    defaults = {known.name: known.default for known in fields(part)}
    return {name: value for name, value in asdict(part).items() if value not in (defaults[name], {}, ())}


def read_wanted(text: str) -> Wanted:
    """Reads the data of a compiled pipeline. Raises `InputError` if another version wrote it."""
    try:
        values = json.loads(text)
        pods = tuple(PodKind(**_tuples(one)) for one in values.pop("pods"))
        secrets = tuple(WantedSecret(**one) for one in values.pop("secrets"))
        return Wanted(pods=pods, secrets=secrets, **values)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"cannot read the run's cluster requirements {text[:200]!r}; compile the pipeline again with this version "
            "of Stillhouse"
        ) from None


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
