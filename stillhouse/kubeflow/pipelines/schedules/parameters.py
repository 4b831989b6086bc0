"""Checks the parameters in a file of schedules against their pipelines before any run is started."""

from __future__ import annotations

from collections.abc import Mapping

from stillhouse.core.config import refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.place import IMAGE
from stillhouse.kubeflow.pipelines.placement_table import FOLDER, find_table
from stillhouse.kubeflow.pipelines.schedules.file import Parameter, Schedules
from stillhouse.kubeflow.pipelines.submit import check_pod_parameters
from stillhouse.kubeflow.pods.run_parameters import SETTINGS
from stillhouse.pipeline.recipes import shipped_files

EVERY_STAGE = "simlm"
"""A recipe with every stage, since the recipe of the cluster's pipeline is unknown here."""


def refuse_parameters(wanted: Schedules) -> None:
    """Raises `InputError` for a parameter that its pipeline lacks, or would refuse in its first task.

    Pipelines of other projects are not checked, and parameters of the user's own placements are unknown here.
    """
    for schedule in wanted.schedules.values():
        _check(schedule.pipeline, schedule.parameters, f"schedule {schedule.name}")
    for watch in (wanted.watches or {}).values():
        _check(watch.pipeline, watch.run_parameters(revision="main"), f"watch {watch.name}")


def _check(pipeline: str, parameters: Mapping[str, Parameter], where: str) -> None:
    if pipeline not in RESULTS:
        return
    request = Request(pipeline, EVERY_STAGE)
    own, pods = request.kinds(), pod_parameters()
    for name in parameters:
        refuse_unknown(name, [*own, *pods], f"{where}: pipeline {pipeline} has no parameter")
    try:  # a run's first task checks `settings`, since it knows the recipe
        request.check({name: value for name, value in parameters.items() if name in own and name != SETTINGS})
        check_pod_parameters({name: str(value) for name, value in parameters.items() if name not in own})
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def pod_parameters() -> dict[str, str]:
    """The parameters of the shipped placements, and their defaults."""
    found = {IMAGE: ""}
    for name in shipped_files(FOLDER):
        found |= find_table(name).parameters
    return found
