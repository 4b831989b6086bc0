"""What the nodes take over from the step's own pod, as Kubernetes describes it.

Kubeflow has filled the user's choices for the run into the pod: the image, and the names of volume claims and secrets.
The nodes copy them from there, so that they get the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stillhouse.kubeflow.kubernetes_api import Plain

CONTAINER = "main"
"""The container of a Kubeflow task that runs the step."""
RUN_LABEL = "pipeline/runid"
"""The pod label in which Kubeflow Pipelines stores the run's id."""


@dataclass(frozen=True)
class OwnPod:
    """`run` is the id of the pipeline run. `owner` is deleted with the run, and the job with it."""

    run: str
    owner: Plain
    image: str
    environment: Mapping[str, Plain] = field(default_factory=dict)
    """The container's variables by name, as in its specification."""
    volumes: Mapping[str, Plain] = field(default_factory=dict)
    """The volumes by mount path, as in the pod's specification, without their names."""
    pull_secrets: Sequence[Plain] = ()

    def variables(self, names: Sequence[str], values: Mapping[str, str]) -> list[Plain]:
        """Some of the variables for another pod: secrets stay references, others get their current values."""
        found = []
        for name in names:
            entry = self.environment.get(name, {})
            if "secretKeyRef" in entry.get("valueFrom", {}):
                found.append({"name": name, "valueFrom": {"secretKeyRef": entry["valueFrom"]["secretKeyRef"]}})
            elif name in values:
                found.append({"name": name, "value": values[name]})
        return found


def describe(pod: Plain) -> OwnPod:
    """Reads a pod."""
    metadata, spec = pod["metadata"], pod["spec"]
    # The run's workflow, which outlives a pod that is retried.
    owner = next(one for one in metadata["ownerReferences"] if one.get("controller"))
    container = next(one for one in spec["containers"] if one["name"] == CONTAINER)
    kinds = {
        one["name"]: {key: value for key, value in one.items() if key != "name"} for one in spec.get("volumes", [])
    }
    return OwnPod(
        run=metadata["labels"][RUN_LABEL],
        # It does not block the deletion of the owner, since that needs permissions on the owner.
        owner={key: owner[key] for key in ("apiVersion", "kind", "name", "uid")},
        image=container["image"],
        environment={entry["name"]: entry for entry in container.get("env", [])},
        volumes={one["mountPath"]: kinds[one["name"]] for one in container.get("volumeMounts", [])},
        pull_secrets=spec.get("imagePullSecrets", []),
    )
