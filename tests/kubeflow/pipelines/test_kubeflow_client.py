"""The requests to Kubeflow's API server, and its refusals in one sentence."""

from __future__ import annotations

import pytest
from cluster_in_memory import schedule
from kubeflow_stand_in import Client

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow


def test_lists_are_read_page_by_page() -> None:
    cluster = Kubeflow("retraining", client=Client())
    assert [entry.name for entry in cluster.recurring_runs()] == ["r0", "r1", "r2"]
    assert [(run.name, run.in_flight) for run in cluster.runs()] == [("x0", True), ("x1", True), ("x2", False)]


def test_a_schedule_is_created_as_the_file_says() -> None:
    client = Client()
    cluster = Kubeflow("retraining", client=client)
    wanted = schedule(parameters={"revision": "main"})
    assert cluster.create(wanted, "n", "d") == "new"
    [(_, named)] = client.calls
    assert (named["experiment_id"], named["pipeline_id"], named["version_id"]) == ("experiment retraining", "p1", "")
    assert (named["cron_expression"], named["no_catchup"], named["max_concurrency"]) == ("0 0 3 * * *", True, 1)
    assert named["params"] == {"revision": "main"} and named["enabled"] is True
    cluster.create(schedule(version="v1"), "n", "d")
    assert client.calls[-1][1]["version_id"] == "id1"
    with pytest.raises(InputError, match="has no pipeline 'train'"):
        cluster.create(schedule(pipeline="train"), "n", "d")
    with pytest.raises(InputError, match="has no version 'v9'; it has: v1"):
        cluster.create(schedule(version="v9"), "n", "d")
    with pytest.raises(InputError, match="has no version 'v9'; it has: v1"):
        cluster.version_of("refresh", "v9")
    assert cluster.version_of("refresh", "").name == "v1"


def test_the_client_has_the_methods_that_are_called() -> None:
    """Compare with kfp's own signatures, because the fake client accepts anything."""
    import inspect

    from kfp import Client as Real

    for name, names in {
        "create_recurring_run": {
            *("experiment_id", "job_name", "description", "cron_expression", "max_concurrency", "no_catchup", "params"),
            *("pipeline_id", "version_id", "enabled", "service_account"),
        },
        "run_pipeline": {"experiment_id", "job_name", "params", "pipeline_id", "version_id", "service_account"},
        "list_pipelines": {"filter", "namespace"},
        "list_runs": {"page_token", "page_size", "namespace"},
        "list_recurring_runs": {"page_token", "page_size", "namespace"},
        "list_experiments": {"namespace", "filter"},
        "list_pipeline_versions": {"pipeline_id", "page_token", "page_size", "sort_by"},
        "enable_recurring_run": {"recurring_run_id"},
        "disable_recurring_run": {"recurring_run_id"},
    }.items():
        assert names <= set(inspect.signature(getattr(Real, name)).parameters), name
