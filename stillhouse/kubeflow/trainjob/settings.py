"""The settings of the nodes that pods start for their steps: one JSON text, from `pipelines/several_nodes.py`.

The run's first task writes it beside the recipe, where every task finds its own part: Argo stores what a task's pod is
given some seven times, but an artifact's content never.
The accelerator's type and count are parameters of the pipeline; the step's process reads them from its command line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from stillhouse.kubeflow.pods.pipeline_parameters import TYPE, accelerator_count, pipeline_parameters

NODES = "STILLHOUSE_NODES"
"""Environment variable that asks for several nodes: `NodeSettings` by task and step, as JSON."""
OWN = 1
"""How many shards of a corpus the pod does itself, in addition to its nodes."""
ALL = "*"
"""The key in that JSON for the most frequent values; always present, possibly empty."""
POD = "KFP_POD_NAME"
"""Environment variable with the name of this pod, which Kubeflow Pipelines sets in every task's pod."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The nodes of a step. Sizes use the notation of Kubernetes; `task` is the step's name in its pipeline.

    `variables` and `paths` name what each node takes over from the step's own pod: environment variables and volume
    paths.
    """

    nodes: int
    task: str
    cpu: str
    cpu_limit: str
    memory: str
    memory_limit: str
    shared_memory: str = ""
    scratch: str = "10Gi"
    scratch_path: str = "/scratch"
    accelerator_type: str = ""
    """Empty if nodes have none."""
    accelerator_count: int = 0
    processes: int = 0
    """Per node; 0 = one per accelerator, or one."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """The job's labels: its queue and priority."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of each node's pod."""
    user: int = 10001
    group: int = 10001
    timeout_seconds: int = 86400
    variables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def processes_per_node(self) -> int:
        return self.processes or self.accelerator_count or 1


def nodes_text(settings: Iterable[tuple[str, NodeSettings]]) -> str:
    """The node settings of steps, each given with its step, as JSON. Only what differs from most is in a step's own."""
    plain = {f"{of.task}/{step}": asdict(of) for step, of in settings}
    known = {one.name: one.default for one in fields(NodeSettings) if one.name != "task"}
    columns = {name: [of[name] for of in plain.values()] for name in known}
    common = {name: max(values, key=values.count) for name, values in columns.items()}
    parts = {key: {name: of[name] for name in known if of[name] != common[name]} for key, of in plain.items()}
    shared = {name: value for name, value in common.items() if value not in (known[name], {}, ())}
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
    text = environment.get(NODES)
    if not text:
        return None
    content = json.loads(text)
    key = next((key for key in content if key.endswith(f"/{step}")), "")
    if not key:
        return None
    values = content[ALL] | content[key]
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    settings = NodeSettings(task=key.partition("/")[0], **(values | lists))
    return with_chosen(settings, pipeline_parameters(command_line))


def with_chosen(settings: NodeSettings, chosen: dict[str, Any]) -> NodeSettings:
    """The settings with the accelerator from the run's parameters; nodes without accelerators stay that way."""
    if not settings.accelerator_type:
        return settings
    count = accelerator_count(chosen, settings.accelerator_count)
    kind = str(chosen.get(TYPE, settings.accelerator_type))
    return replace(settings, accelerator_type=kind, accelerator_count=count)
