"""The settings of the nodes that pods start for their steps: one JSON text, from the placements of the steps.

The run's first task writes it beside the recipe, where every task finds its own part: Argo stores what a task's pod is
given some seven times, but an artifact's content never.
The accelerator's type and count are parameters of the pipeline; the step's process reads them from its command line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stillhouse.core.config import read_as
from stillhouse.kubeflow.placement import Accelerator, Placement
from stillhouse.kubeflow.pods.several_processes import PROCESSES
from stillhouse.kubeflow.pods.task import TYPE, accelerator_count, pipeline_parameters
from stillhouse.pipeline.steps.registry import steps

NODES = "STILLHOUSE_NODES"
"""Environment variable that asks for several nodes: the placement of each by task and step, as JSON."""
OWN = 1
"""How many shards of a corpus the pod does itself, in addition to its nodes."""
ALL = "*"
"""The key in that JSON for the most frequent values; always present, possibly empty."""
POD = "KFP_POD_NAME"
"""Environment variable with the name of this pod, which Kubeflow Pipelines sets in every task's pod."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The nodes of a step. `task` is the name of its task in the pipeline; `parallel`: several processes may run it."""

    task: str
    placement: Placement
    parallel: bool = True

    @property
    def processes(self) -> int:
        """Per node: one per accelerator, or one, unless the placement's environment names another number."""
        given = int(self.placement.environment.get(PROCESSES) or 0) if self.parallel else 1
        return given or (self.placement.accelerator.count if self.placement.accelerator else 1)


def nodes_text(placements: Iterable[tuple[str, str, Placement]]) -> str:
    """The placements of nodes as JSON, each given with its task and step. A step's own has what differs from most."""
    known = asdict(Placement())
    plain = {f"{task}/{step}": asdict(placement) for task, step, placement in placements}
    columns = {name: [of[name] for of in plain.values()] for name in known}
    common = {name: max(values, key=values.count) for name, values in columns.items()}
    parts = {key: {name: of[name] for name in known if of[name] != common[name]} for key, of in plain.items()}
    shared = {name: value for name, value in common.items() if value != known[name]}
    return json.dumps({ALL: shared} | parts, sort_keys=True, separators=(",", ":"))


def nodes_of(text: str, task: str) -> str:
    """The part of such a text that is of one task; empty if its steps have no nodes."""
    content = json.loads(text or "{}")
    own = {key: of for key, of in content.items() if key.startswith(f"{task}/")}
    return json.dumps({ALL: content[ALL]} | own) if own else ""


def read_node_settings(
    environment: Mapping[str, str], step: str, command_line: Sequence[str] = ()
) -> NodeSettings | None:
    """The environment's node settings for a step, with the run's accelerator; None for a single node."""
    content: dict[str, Any] = json.loads(environment.get(NODES) or "{}")
    key = next((key for key in content if key.endswith(f"/{step}")), "")
    if not key:
        return None
    placement = read_as(Placement, content[ALL] | content[key], f"${NODES}: {key}")
    if gpu := placement.accelerator:
        chosen = pipeline_parameters(command_line)
        chosen_gpu = Accelerator(type=str(chosen.get(TYPE, gpu.type)), count=accelerator_count(chosen, gpu.count))
        placement = replace(placement, accelerator=chosen_gpu)
    known = steps().get(step)
    return NodeSettings(task=key.partition("/")[0], placement=placement, parallel=known is None or known.parallel)
