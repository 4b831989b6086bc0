"""A step on several nodes, seen from its own pod: inputs out, job, outputs back.

Kubeflow gives artifacts only to the step's own pod. The nodes share one volume with it, the one for unfinished work
and checkpoints. The pod copies its inputs there before the job, into a folder of the job, and takes the outputs from
there after it.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json, read_manifest, whole_folders
from stillhouse.core.context import NAMESPACE, own_namespace, say, work_root
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import ELSEWHERE, doing
from stillhouse.core.own_files import copy_whole, link_or_copy
from stillhouse.kubeflow.kubernetes_api import connect
from stillhouse.kubeflow.pods.several_processes import step_words, torchrun_words
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.follow import find_or_start, follow
from stillhouse.kubeflow.trainjob.manifest import job_name, train_job
from stillhouse.kubeflow.trainjob.own_pod import describe
from stillhouse.kubeflow.trainjob.settings import POD, NodeSettings
from stillhouse.pipeline.steps.execute import checked, read_report, work_name
from stillhouse.pipeline.steps.old_work import remove_old_work
from stillhouse.pipeline.steps.spec import Report, Step

FOLDER = "trainjobs"
NODE_PROGRAM = ("python3", "-m", "stillhouse.kubeflow.pods.torchrun")
"""Trainer sets torchrun's own environment variables (`PET_…`): the number of nodes, the number of this one, and the
address of the first one."""


def execute_on_nodes(
    step: Step, config: Any, inputs: Mapping[str, Path], outputs: Mapping[str, Path], settings: NodeSettings
) -> Report:
    """Runs a step as a `TrainJob`, in which its processes on all nodes share the work.

    A retry of the same task in the same run finds the job that the previous try started, or its results. Raises
    `InputError` for wrong inputs, before requesting any node, and `CrashElsewhere` if the job failed.
    """
    if not step.parallel and settings.placement.nodes * settings.processes > 1:
        raise InputError(f"step '{step.name}' runs in one process; give its placement `nodes: 1`")
    inputs, digests = checked(step, inputs, outputs)

    def command(folder: Path) -> list[str]:
        made = {name: folder / "outputs" / name for name in outputs}
        words = step_words(step, config, put_inputs(folder, inputs), made)
        return [*NODE_PROGRAM, *torchrun_words([*words, f"--report={folder / 'report.json'}"])]

    # Without the hardware: a retry's pod may run on another machine than the first one's, as the nodes do.
    work = work_name(step, config, digests)
    folder = run_job(step.name, work, settings, command, lambda folder: (folder / "report.json").is_file())
    with doing("collecting the outputs of the nodes"):
        facts = read_manifest(folder / "outputs" / next(iter(outputs)), verify=False).facts
        report = read_report(folder / "report.json", facts)
        with whole_folders(list(outputs.values())) as stagings:
            for name, staging in zip(outputs, stagings):
                shutil.copytree(folder / "outputs" / name, staging, dirs_exist_ok=True, copy_function=link_or_copy)
        shutil.rmtree(folder, ignore_errors=True)
    where = "a node of its own" if settings.placement.nodes == 1 else f"{settings.placement.nodes} nodes"
    return replace(report, summary=f"{report.summary}, on {where}")


def run_job(
    step: str,
    work: str,
    settings: NodeSettings,
    command: Callable[[Path], Sequence[str]],
    done: Callable[[Path], bool],
    beside: Callable[[Path], AbstractContextManager[None]] = lambda folder: nullcontext(),
) -> Path:
    """Finds or starts the `TrainJob` of a piece of work, follows it to its end, and returns its folder on the volume.

    `work` names the work. `command` returns what each node runs, from the folder, and `done` says whether the results
    are there. The job is followed inside the context `beside`. Raises the errors of `execute_on_nodes`.
    """
    own, namespace = os.environ.get(POD, ""), own_namespace()
    if not own or not namespace:
        raise InputError(f"only a pod of Kubeflow can start nodes: ${POD} and {NAMESPACE} do not say which pod this is")
    cluster = Cluster(connect("several nodes need"), namespace, say)
    pod = describe(cluster.pod(own))
    name = job_name(step, pod.run, settings.task, work)
    folder = work_root().absolute() / FOLDER / f"{step}-{digest_json([name])[:20]}"
    remove_old_work(folder.parent, step, folder.name)
    with doing("copying the inputs to the nodes"):
        job = train_job(name, step, command(folder), settings, pod, os.environ)
    with deleted_with_this_pod(cluster, name):
        find_or_start(cluster, job, lambda: done(folder))
        with doing(ELSEWHERE), beside(folder):
            follow(cluster, name)
    if not done(folder):
        raise InputError(
            f"the nodes succeeded but left nothing in {folder}: another volume is mounted there. Give the placement a "
            "claim that every node can mount (ReadWriteMany), and start another run"
        )
    return folder


@contextmanager
def deleted_with_this_pod(cluster: Cluster, name: str) -> Iterator[None]:
    """While the block runs, SIGTERM ends this process, and the job `name` with it: its run may be over.

    If only this pod was preempted, its retry starts the job again, which continues from the last checkpoint.
    """

    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except SystemExit:
        if job := cluster.find(name):
            cluster.delete(job)
            cluster.log(f"this pod is being terminated: deleted TrainJob {name}")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def put_inputs(folder: Path, inputs: Mapping[str, Path]) -> dict[str, Path]:
    """Puts inputs into a job's folder, and returns where each is there."""
    return {name: copy_whole(source, folder / "inputs" / name) for name, source in inputs.items()}
