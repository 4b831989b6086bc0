"""A step on several nodes, seen from its own pod: inputs out, job, outputs back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.core.context import NAMESPACE, own_namespace, say
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import ELSEWHERE, doing
from stillhouse.kubeflow.cluster.api import connect
from stillhouse.kubeflow.pods.several_processes import step_words
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.exchange import Exchange, exchange_root, prune
from stillhouse.kubeflow.trainjob.follow import find_or_start, follow
from stillhouse.kubeflow.trainjob.manifest import job_name, train_job
from stillhouse.kubeflow.trainjob.own_pod import describe
from stillhouse.kubeflow.trainjob.parts import Parts
from stillhouse.kubeflow.trainjob.run_end import left_for_the_retry
from stillhouse.kubeflow.trainjob.settings import POD, NodeSettings
from stillhouse.pipeline.steps.execute import open_inputs, refuse_mismatch, refuse_outputs, work_name
from stillhouse.pipeline.steps.spec import Report, Step

NODE_PROGRAM = ("python3", "-m", "stillhouse.kubeflow.trainjob.node")


H = TypeVar("H", Exchange, Parts)


def execute_on_nodes(
    step: Step,
    config: Any,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    settings: NodeSettings,
    cluster: Cluster | None = None,
) -> Report:
    """Runs a step as a `TrainJob`, in which its processes on all nodes share the work.

    A retry of the same task in the same run finds the job that the previous try started, or its results. Raises
    `InputError` for wrong inputs, before requesting any node, and for what a node refuses; `CrashElsewhere` if a node
    crashed or was taken away.
    """
    if not step.parallel and settings.nodes * settings.processes_per_node > 1:
        raise InputError(f"step '{step.name}' runs in one process; give its placement `nodes: 1`")
    inputs = {name: Path(path) for name, path in inputs.items() if path}
    with doing("verifying the digests of its inputs"):
        manifests = open_inputs(step, inputs)
    refuse_mismatch(step, manifests)
    refuse_outputs(inputs, outputs)

    def command(exchange: Exchange) -> list[str]:
        flags = step_words(step, config, exchange.put(inputs), exchange.outputs)
        return [*NODE_PROGRAM, *flags, f"--report={exchange.report}"]

    # Without the hardware: a retry's pod may run on another machine than the first one's, as the nodes do.
    work = work_name(step, config, {name: manifest.digest for name, manifest in manifests.items()})
    exchange = run_job(step.name, work, settings, lambda folder: Exchange(folder, step), command, cluster)
    with doing("collecting the outputs of the nodes"):
        return exchange.collect(outputs, settings.nodes)


def run_job(
    step: str,
    work: str,
    settings: NodeSettings,
    exchange_in: Callable[[Path], H],
    command: Callable[[H], Sequence[str]],
    cluster: Cluster | None = None,
    beside: Callable[[H], AbstractContextManager[None]] = lambda exchange: nullcontext(),
) -> H:
    """Finds or starts the `TrainJob` of a piece of work, follows it to its end, and returns its exchange.

    `work` names the work and `exchange_in` creates its exchange in a folder of the shared volume. `command` is called
    when a job may have to be started, and returns what each node runs. The job is followed inside the context
    `beside`. Raises the errors of `execute_on_nodes`.
    """
    own, namespace = os.environ.get(POD, ""), own_namespace()
    if not own or not namespace:
        raise InputError(f"only a pod of Kubeflow can start nodes: ${POD} and {NAMESPACE} do not say which pod this is")
    cluster = cluster or Cluster(connect("several nodes need"), namespace, say)
    log = cluster.log
    pod = describe(cluster.pod(own))
    name = job_name(step, pod.run, settings.task, work)
    exchange = exchange_in(exchange_root() / name)
    with left_for_the_retry(cluster, name, pod.owner):
        for gone in prune(name, lambda other: cluster.find(other) is not None):
            log(f"removed the folder of {gone}, whose run was deleted")
        if exchange.done():
            log(f"TrainJob {name}: it finished in an earlier try of this step")
        else:
            with doing("copying the inputs to the nodes"):
                job = train_job(name, step, command(exchange), settings, pod, os.environ)
            find_or_start(cluster, job, exchange, log)
            with doing(ELSEWHERE), beside(exchange):
                follow(cluster, name, settings.nodes, log)
    return exchange
