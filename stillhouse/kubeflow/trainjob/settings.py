"""The settings of the nodes that a step's pod starts: one JSON text, from `pipelines/several_nodes.py`.

The accelerator's type and count are parameters of the pipeline; the step's process reads them from its command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pods.pipeline_parameters import TYPE, accelerator_count, pipeline_parameters
from stillhouse.kubeflow.preflight import with_gpus

NODES = "STILLHOUSE_NODES"
"""Environment variable that asks for several nodes: `NodeSettings` by step name, as JSON."""
OWN = 1
"""How many shards of a corpus the pod does itself, in addition to its nodes."""
ALL = "*"
"""The key in that JSON for settings that all steps share; always present, possibly empty."""
POD = "STILLHOUSE_POD"
POD_NAMESPACE = "STILLHOUSE_POD_NAMESPACE"


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The nodes of a step. Sizes use the notation of Kubernetes; `task` is the step's name in its pipeline.

    `variables` and `paths` name what each node takes over from the step's own pod: environment variables and volume
    paths. `preflight` has the requirements that a node checks before it starts.
    """

    nodes: int
    task: str
    runtime: str
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
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of each node's pod."""
    user: int = 10001
    group: int = 10001
    timeout_seconds: int = 86400
    variables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    preflight: str = ""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.timeout_seconds < 1 or self.processes < 0 or self.accelerator_count < 0:
            raise InputError(f"${NODES} has values out of range ({self.nodes} nodes); compile the pipeline again")

    @property
    def processes_per_node(self) -> int:
        return self.processes or self.accelerator_count or 1


def nodes_text(settings: Mapping[str, NodeSettings]) -> str:
    """The node settings of a pod's steps by name, as JSON. Shared values appear once, under `ALL`; defaults do not."""
    defaults = {known.name: known.default for known in fields(NodeSettings)}
    content = {
        step: {name: value for name, value in asdict(of).items() if value not in (defaults[name], {}, ())}
        for step, of in settings.items()
    }
    first = next(iter(content.values()), {})
    common = {name: value for name, value in first.items() if all(of.get(name) == value for of in content.values())}
    parts = {step: {name: value for name, value in of.items() if name not in common} for step, of in content.items()}
    return json.dumps({ALL: common} | parts, sort_keys=True, separators=(",", ":"))


def read_node_settings(
    environment: Mapping[str, str], step: str, command_line: Sequence[str] = ()
) -> NodeSettings | None:
    """The environment's node settings for a step, with the run's accelerator; None for a single node."""
    text = environment.get(NODES)
    if not text:
        return None
    try:
        content = json.loads(text)
        common = content[ALL]  # missing if an older version wrote the settings of one step
        if step not in content:
            return None
        values = common | content[step]
        unknown = sorted(values.keys() - {known.name for known in fields(NodeSettings)})
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        settings = NodeSettings(**(values | lists)) if not unknown else None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        settings = None
    if settings is None:
        raise InputError(f"${NODES} is {text[:200]!r}; compile the pipeline again with this version of Stillhouse")
    return with_chosen(settings, pipeline_parameters(command_line))


def with_chosen(settings: NodeSettings, chosen: dict[str, Any]) -> NodeSettings:
    """The settings with the accelerator from the run's parameters, which a node checks for before it starts.

    Nodes without accelerators stay that way.
    """
    if not settings.accelerator_type:
        return settings
    count = accelerator_count(chosen, settings.accelerator_count)
    kind = str(chosen.get(TYPE, settings.accelerator_type))
    preflight = with_gpus(settings.preflight, count) if settings.preflight else ""
    return replace(settings, accelerator_type=kind, accelerator_count=count, preflight=preflight)
