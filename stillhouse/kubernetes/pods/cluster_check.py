"""The first task of a Kubeflow run: checks that the cluster has what the run's pods need."""

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
    """Ends the process with the exit code of bad input for a parameter out of range, or as in `refuse_missing`.

    `values` has the task's arguments: the parameters, and under `wanted` the requests of the run's pods, which are
    empty for a run on this machine.
    """
    refuse_parameters(pipeline, values, str(values.get("recipe", "")))
    if values["wanted"]:
        refuse_missing(values["wanted"])


def refuse_missing(text: str) -> None:
    """Ends the process with the exit code of bad input if the cluster lacks what the run's pods ask for.

    `text` has their requests as compiled into the pipeline; the choices for this run are among the task's inputs.
    """
    with watched_task("check-cluster"):
        wanted = read_wanted(text).with_chosen(pipeline_parameters(sys.argv))
        api = None
        try:
            namespace = os.environ.get(POD_NAMESPACE, "")
            if not namespace:
                raise InputError(f"not checked: ${POD_NAMESPACE} does not name the namespace of this pod")
            api = Api(connect("not checked: that needs"), namespace)
        except InputError as nowhere:
            show(f"[cluster] {nowhere}")
        for notice in check(wanted, take_readings(wanted, api)):
            show(f"[cluster] {notice}")
        show("[cluster] found nothing missing")
