"""The search as a Katib Experiment, built from the space and the pods; nothing here talks to a cluster.

It is a plain mapping because the Kubeflow SDK's optimizer sets no metrics collector, supports only TrainJobs, and
creates the Experiment immediately instead of writing it. Tests read the result with Katib's own API models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stillhouse.errors import InputError
from stillhouse.setting_kinds import as_flag
from stillhouse.tuning.space import Choices, Parameter, Space

OBJECTIVE, GAIN = "dev_rr10", "dev_gain"
"""A trial's metrics: RR@10 on the dev questions at its end, and the gain since its start during training."""
METRICS = "/var/log/katib/metrics.log"
CONTAINER = "trial"
VOLUME = "/volume"
SCRATCH = "/scratch"
USER = 10001
MOST_FAILED = 3
PLAIN = re.compile(r"[A-Za-z0-9.,_+/:@-]+")
"""Valid words of a trial's command: Katib joins the words with spaces and passes them to a shell."""

Plain = dict[str, Any]


@dataclass(frozen=True)
class Pods:
    """The pods of trials. `claim` is the volume with the `workspace`; `folder` is the search's folder in it."""

    image: str
    claim: str
    workspace: str
    folder: str
    space: str
    params: str
    cpu: str
    memory: str
    gpus: int = 0


class MetricsFile:
    """The file of `TIME name=value` lines that Katib's collector reads while a trial writes it.

    Raises `InputError` if the file exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = self._path.open("x", encoding="utf-8", buffering=1)
        except FileExistsError:
            raise InputError(f"--metrics {self._path} exists; remove it, or choose another file") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def write(self, name: str, value: float) -> None:
        """Append a line and flush it."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._file.write(f"{moment} {name}={value:.6f}\n")


def experiment(space: Space, pods: Pods, *, trials: int, parallel: int, seed: int) -> Plain:
    """The Experiment: TPE over the space. Raises `InputError` for a value that is not valid in a pod's command."""
    names = {parameter.key: parameter_name(parameter) for parameter in space.parameters}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"generateName": "stillhouse-tune-", "labels": {"app.kubernetes.io/part-of": "stillhouse"}},
        "spec": {
            "objective": {
                "type": "maximize",
                "objectiveMetricName": OBJECTIVE,
                "additionalMetricNames": [GAIN],
                "metricStrategies": [{"name": name, "value": "latest"} for name in (OBJECTIVE, GAIN)],
            },
            "algorithm": {
                "algorithmName": "tpe",
                "algorithmSettings": [{"name": "random_state", "value": str(seed)}],
            },
            "parallelTrialCount": min(parallel, trials),
            "maxTrialCount": trials,
            "maxFailedTrialCount": MOST_FAILED,
            "metricsCollectorSpec": {
                "collector": {"kind": "File"},
                "source": {"fileSystemPath": {"path": METRICS, "kind": "File", "format": "TEXT"}},
            },
            "parameters": [
                {
                    "name": names[parameter.key],
                    "parameterType": parameter_type(parameter),
                    "feasibleSpace": feasible_space(parameter),
                }
                for parameter in space.parameters
            ],
            "trialTemplate": {
                "primaryContainerName": CONTAINER,
                "retain": False,
                "trialParameters": [
                    {"name": name, "description": key, "reference": name} for key, name in names.items()
                ],
                "trialSpec": trial_job(space, names, pods),
            },
        },
    }


def parameter_name(parameter: Parameter) -> str:
    """A parameter's name in the trial's placeholders, which must not contain dots."""
    return f"{parameter.section}-{parameter.field}".replace("_", "-")


def parameter_type(parameter: Parameter) -> str:
    if isinstance(parameter.domain, Choices):
        return "categorical"
    return "int" if parameter.domain.whole else "double"


def feasible_space(parameter: Parameter) -> Plain:
    """The values that Katib searches, all as text."""
    domain = parameter.domain
    if isinstance(domain, Choices):
        texts = [_text(value) for value in domain.values]
        return {"list": [_plain(text, parameter.key) for text in texts]}
    bounds = {"min": _text(domain.low), "max": _text(domain.high)}
    return bounds | {"distribution": "logUniform" if domain.log else "uniform"}


def trial_job(space: Space, names: dict[str, str], pods: Pods) -> Plain:
    """The Job of a trial; its pod conforms to the `restricted` Pod Security Standard."""
    words = ["tune", "--params", pods.params, "--space", pods.space, "--retriever", space.retriever]
    words += ["--folder", pods.folder]
    for key, name in names.items():
        words += ["--trial", f"{key}=${{trialParameters.{name}}}"]
    words += ["--metrics", METRICS]
    for word in (pods.params, pods.space, space.retriever, pods.folder, pods.workspace):
        _plain(word, "a trial's command")
    resources: Plain = {
        "requests": {"cpu": pods.cpu, "memory": pods.memory},
        "limits": {"cpu": pods.cpu, "memory": pods.memory},
    }
    if pods.gpus:
        for part in resources.values():
            part["nvidia.com/gpu"] = str(pods.gpus)
    container = {
        "name": CONTAINER,
        "image": pods.image,
        # Set explicitly: Katib wraps the command and would otherwise look up the image's entrypoint in the registry.
        "command": ["stillhouse"],
        "args": words,
        "workingDir": f"{VOLUME}/{pods.workspace}".rstrip("/"),
        "env": [
            {"name": "HOME", "value": SCRATCH},
            {"name": "TMPDIR", "value": SCRATCH},
            {"name": "OMP_NUM_THREADS", "value": threads(pods.cpu)},
        ],
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "work", "mountPath": VOLUME},
            {"name": "scratch", "mountPath": SCRATCH},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "work", "persistentVolumeClaim": {"claimName": pods.claim}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"backoffLimit": 1, "template": {"spec": pod}},
    }


def threads(cpu: str) -> str:
    """The number of computing threads for a pod's CPU quantity in Kubernetes notation.

    Raises `InputError` for an invalid quantity.
    """
    match = re.fullmatch(r"([0-9]+)(m?)", cpu)
    if not match:
        raise InputError(f"--cpu {cpu}: write a number of CPUs, for example 2 or 1500m")
    return str(max(1, int(match[1]) // (1000 if match[2] else 1)))


def _text(value: object) -> str:
    return as_flag(value)


def _plain(text: str, where: str) -> str:
    if not PLAIN.fullmatch(text):
        raise InputError(
            f"{where}: {text!r} is not valid in a trial's command, which Katib passes to a shell; use letters, digits "
            "and . , _ + / : @ -"
        )
    return text
