"""Where and how a task's pod runs, as one dataclass that checks its values.

A `Placement` is data; `pipelines/place.py` applies it to a task, `trainjob/manifest.py` to the nodes of a step, and
`pipelines/placement_table.py` reads tables of them. Choices that may change from run to run (the image, the
accelerator's type and count) have a default here and become parameters of the pipeline.

The backend of Kubeflow Pipelines sets three things for every pod: no privilege escalation, all capabilities dropped,
and the seccomp profile `RuntimeDefault`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.settings import GATEWAY, PIPELINE, PORT, RUN, TASK, monitoring_settings

CPU = re.compile(r"[1-9][0-9]*m?")
BYTES = re.compile(r"([1-9][0-9]*)(Mi|Gi|Ti)")
RESOURCE = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]+")
"""The name of an extended resource, such as nvidia.com/gpu."""
DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")
GIB = {"Mi": 1 / 1024, "Gi": 1.0, "Ti": 1024.0}
SHARED_MEMORY = "/dev/shm"
QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"


def gib(quantity: str) -> float:
    """A quantity of bytes, such as 512Mi, in GiB."""
    match = BYTES.fullmatch(quantity)
    assert match, quantity
    return int(match[1]) * GIB[match[2]]


def refuse_image(image: str) -> None:
    """Refuses an image in a registry that is not named by its digest.

    A tag can move to another image, and a run would not say which code it ran. An image without a registry, such as
    `stillhouse:0.2.0`, was loaded onto the node.
    """
    if not image or re.search(r"\s", image):
        raise InputError(f"the image {image!r} is not an image name; give REGISTRY/NAME@sha256:DIGEST")
    if "/" in image and not DIGEST.fullmatch(image):
        raise InputError(f"the image {image} is not named by its digest; write {image.split('@')[0]}@sha256:DIGEST")


def _check(good: bool, what: str, remedy: str) -> None:
    if not good:
        raise InputError(f"{what}; {remedy}")


def _refuse_bytes(value: str, what: str) -> None:
    _check(bool(BYTES.fullmatch(value)), f"{what} is {value!r}", "write a number of Mi, Gi or Ti, like 16Gi")


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """The accelerator of a pod. Type and count are parameters of the pipeline with these defaults."""

    type: str = "nvidia.com/gpu"
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.count >= 1, f"{self.count} accelerators", "leave out the accelerator if there is none")


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A node taint that the pod tolerates; without a value, any value."""

    key: str
    value: str = ""
    effect: str = ""

    @property
    def plain(self) -> dict[str, str]:
        """In Kubernetes' words."""
        how = {"operator": "Equal", "value": self.value} if self.value else {"operator": "Exists"}
        return {"key": self.key} | how | ({"effect": self.effect} if self.effect else {})


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An existing volume claim; steps of one task share that of a `role`."""

    role: str
    name: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A secret: keys that become environment variables, or a folder of files. Messages name its `role`.

    An `optional` secret may be missing: the pod starts anyway, and the step reports which credentials it lacks.
    """

    role: str
    name: str
    keys: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    optional: bool = True

    def __post_init__(self) -> None:
        _check(bool(self.keys) != bool(self.path), f"secret {self.name}", "give either keys, or a path to mount it at")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The pod of one kind of task.

    `cpu` and `memory` are the requests; `cpu_limit` and `memory_limit` are the limits (by default the same).
    `shared_memory` is the size of /dev/shm, which is in memory and counts against `memory_limit`; empty keeps the
    container's 64 MiB. `scratch` is the size of a folder for files that end with the pod. `queue` is a Kueue queue;
    `user` and `group` are the numeric ids of the container's user and group. With several `nodes` all of this applies
    to each node of a `TrainJob`, which a small pod of the step starts and follows.
    """

    nodes: int = 1
    cpu: str = "500m"
    cpu_limit: str = ""
    memory: str = "2Gi"
    memory_limit: str = ""
    accelerator: Accelerator | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    queue: str = ""
    priority: str = ""
    """The name of a Kueue priority class."""
    shared_memory: str = ""
    scratch: str = "10Gi"
    scratch_path: str = "/scratch"
    claims: tuple[Claim, ...] = ()
    secrets: tuple[Secret, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    retries: int = 2
    retry_after_seconds: int = 30
    timeout_hours: float = 24
    user: int = 10001
    group: int = 10001

    def __post_init__(self) -> None:
        _check(1 <= self.nodes <= 99, f"{self.nodes} nodes", "give 1 to 99")
        for value, what in ((self.cpu, "cpu"), (self.limits["cpu"], "cpu_limit")):
            _check(bool(CPU.fullmatch(value)), f"{what} is {value!r}", "write whole cores, or thousandths like 500m")
        _check(cores(self.limits["cpu"]) >= cores(self.cpu), "cpu_limit is below cpu", "raise it")
        _refuse_bytes(self.memory, "memory")
        _refuse_bytes(self.limits["memory"], "memory_limit")
        most = gib(self.limits["memory"])
        _check(most >= gib(self.memory), "memory_limit is below memory", "raise it")
        if self.shared_memory:
            _refuse_bytes(self.shared_memory, "shared_memory")
            remedy = f"raise memory_limit above {self.shared_memory}: files in {SHARED_MEMORY} count against it"
            _check(gib(self.shared_memory) < most, f"shared_memory is {self.shared_memory}", remedy)
        _refuse_bytes(self.scratch, "scratch")
        _check(0 <= self.retries <= 10, f"{self.retries} retries", "give 0 to 10")
        _check(self.retry_after_seconds >= 0, "retry_after_seconds is negative", "give 0 or more")
        _check(self.timeout_hours > 0, f"timeout_hours is {self.timeout_hours}", "give a time above 0")
        _check(min(self.user, self.group) > 0, "user or group is 0, the superuser", "give a number like 10001")
        paths = [self.scratch_path, SHARED_MEMORY, *self.paths]
        for path in paths:
            _check(path.startswith("/"), f"something is mounted at {path!r}", "give an absolute path like /volume")
        twice = sorted({path for path in paths if paths.count(path) > 1})
        _check(not twice, f"two volumes at {', '.join(twice)}", "mount each at its own path")

    @property
    def requests(self) -> dict[str, str]:
        return {"cpu": self.cpu, "memory": self.memory}

    @property
    def limits(self) -> dict[str, str]:
        return {"cpu": self.cpu_limit or self.cpu, "memory": self.memory_limit or self.memory}

    @property
    def queue_labels(self) -> dict[str, str]:
        """The labels by which Kueue knows its queue and priority."""
        return {name: value for name, value in ((QUEUE, self.queue), (PRIORITY, self.priority)) if value}

    @property
    def pod_annotations(self) -> dict[str, str]:
        """The annotations of a pod, and where to scrape it. Raises `InputError` for an invalid port.

        A task cannot declare a container port; the monitor in manifests/ reads these instead.
        """
        port = monitoring_settings(self.environment).port
        scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)} if port else {}
        return dict(self.annotations) | scraped

    @property
    def variables(self) -> list[str]:
        """The environment variables that nodes take over from the step's pod."""
        secrets = [name for secret in self.secrets for name in secret.keys.values()]
        return sorted({*self.environment, *secrets, PORT, GATEWAY, PIPELINE, TASK, RUN})

    @property
    def paths(self) -> list[str]:
        """The places of volumes that nodes take over from the step's pod."""
        return [claim.path for claim in self.claims] + [secret.path for secret in self.secrets if secret.path]

    @property
    def parameters(self) -> dict[str, str]:
        """The pipeline's parameters that this placement reads, and their defaults; all text, as pod specs require."""
        gpu = self.accelerator
        return {"accelerator_type": gpu.type, "accelerator_count": str(gpu.count)} if gpu else {}


def cores(cpu: str) -> float:
    """A quantity of CPUs, such as 500m, in cores."""
    return int(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
