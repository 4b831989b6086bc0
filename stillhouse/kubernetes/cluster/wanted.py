"""What a run's pods ask of the cluster: data that a compiled pipeline carries, completed by the run's parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from stillhouse.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PodKind:
    """Pods that ask for the same, and the tasks that have them. Amounts are written as Kubernetes writes them.

    With several `nodes` a task has that many of these pods at once. `scales_from_zero` says that the cluster makes
    nodes when they are asked for, so that what no node has now may come.
    """

    tasks: tuple[str, ...]
    cpu: str
    cpu_limit: str
    memory: str
    memory_limit: str
    accelerator: bool = False
    nodes: int = 1
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    """Each with `key`, and `value` and `effect` where only those are meant."""
    queue: str = ""
    scales_from_zero: bool = False


@dataclass(frozen=True, kw_only=True)
class WantedSecret:
    """A secret by its name and the parameter that holds the name.

    The task that looks has it as if it were optional: `keys` names the variable of each key, or it lies at `path`.
    """

    parameter: str
    name: str
    optional: bool
    keys: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """All of it. `claims` are names by their parameters; the accelerator is that of every pod that has one."""

    pods: tuple[PodKind, ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[WantedSecret, ...] = ()
    accelerator_type: str = ""
    accelerator_count: str = "0"
    """As text, since that is what a person gives."""

    def to_json(self) -> str:
        """As short as may be, since it stands in the object of the run some ten times: defaults are left out."""
        content: dict[str, Any] = {name: value for name, value in asdict(self).items() if value}
        content["pods"] = [_short(pod) for pod in self.pods]
        content["secrets"] = [_short(secret) for secret in self.secrets]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    def with_chosen(self, chosen: Mapping[str, Any]) -> Wanted:
        """The same with what a person chose for the run: `chosen` has the pipeline's parameters."""
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
    """The data of a compiled pipeline. Raises `InputError` for that of another version."""
    try:
        values = json.loads(text)
        pods = tuple(PodKind(**_tuples(one)) for one in values.pop("pods"))
        secrets = tuple(WantedSecret(**one) for one in values.pop("secrets"))
        return Wanted(pods=pods, secrets=secrets, **values)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"what the run asks of the cluster is {text[:200]!r}; compile the pipeline again with this version of "
            "Stillhouse"
        ) from None


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
