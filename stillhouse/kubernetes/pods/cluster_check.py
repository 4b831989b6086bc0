"""What the first task of a Kubeflow run calls: a look at the cluster, before pods that would wait there in vain."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from stillhouse.errors import InputError
from stillhouse.kubernetes.cluster.admission import check
from stillhouse.kubernetes.cluster.api import Api, connect
from stillhouse.kubernetes.cluster.readings import take_readings
from stillhouse.kubernetes.cluster.wanted import read_wanted
from stillhouse.kubernetes.pods.component import watched_task
from stillhouse.kubernetes.pods.pipeline_parameters import pipeline_parameters
from stillhouse.kubernetes.pods.run_control import refuse_parameters
from stillhouse.kubernetes.trainjob.settings import POD_NAMESPACE
from stillhouse.terminal import show


def refuse_run(pipeline: str, values: Mapping[str, Any]) -> None:
    """Ends the process with the exit code of bad input for a parameter that is out of range, and as `refuse_missing`.

    `values` are the task's arguments: the parameters, and as `wanted` what the run's pods ask for; nothing of the
    latter where it runs on this machine.
    """
    refuse_parameters(pipeline, values, str(values.get("recipe", "")))
    if values["wanted"]:
        refuse_missing(values["wanted"])


def refuse_missing(text: str) -> None:
    """Ends the process with the exit code of bad input where the cluster lacks what the run's pods ask for.

    `text` is what they ask for, as the pipeline was compiled; what was chosen for the run is among the task's inputs.
    """
    with watched_task("check-cluster"):
        wanted = read_wanted(text).with_chosen(pipeline_parameters(sys.argv))
        api = None
        try:
            namespace = os.environ.get(POD_NAMESPACE, "")
            if not namespace:
                raise InputError(f"not looked at: ${POD_NAMESPACE} does not say in which namespace this pod is")
            api = Api(connect("not looked at: that needs"), namespace)
        except InputError as nowhere:
            show(f"[cluster] {nowhere}")
        for notice in check(wanted, take_readings(wanted, api)):
            show(f"[cluster] {notice}")
        show("[cluster] nothing that this run asks for was found missing")
