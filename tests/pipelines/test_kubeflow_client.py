"""The requests to Kubeflow's API server, and its refusals in one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cluster_in_memory import schedule
from kubeflow_stand_in import Client, refusal
from urllib3.exceptions import MaxRetryError

from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.pipelines.schedules.cluster import Kubeflow


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


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            refusal(400, '{"message": "Schedule cron is not\\nsupported"}'),
            r"refuses the recurring run \(400\): .*not supported",
        ),
        (refusal(502, "<html>"), r"refuses the recurring run \(502\): <html>"),
        (refusal(500, ""), r"\(500\): Bad Request"),
        (MaxRetryError(None, "/apis"), "does not answer"),  # type: ignore[arg-type]
    ],
)
def test_what_the_server_refuses_is_reported_in_a_sentence(
    error: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client()

    def refuse(**named: Any) -> None:
        raise error

    client.create_recurring_run = refuse  # type: ignore[method-assign]
    monkeypatch.setattr("stillhouse.pipelines.schedules.cluster._connect", lambda endpoint, namespace: client)
    monkeypatch.setattr(client, "_page", lambda *given: SimpleNamespace(recurring_runs=None, next_page_token=""))
    entry = {"pipeline": "refresh", "cron": "0 0 3 * * *", "parameters": {"releases": "r"}}
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump({"schedules": {"a": entry}}))
    assert cli.main(["schedule", "apply", str(tmp_path / "schedules.yaml")]) == 2
    said = capsys.readouterr()
    assert re.search(message, said.err) and said.out.startswith("fail")
    assert "stays in use" in said.err and "Traceback" not in said.err


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


def test_an_unreachable_server_is_named_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schedules.yaml").write_text("schedules: {}\n")
    assert cli.main(["schedule", "apply", str(tmp_path / "schedules.yaml"), "--endpoint", "http://127.0.0.1:9"]) == 2
    said = capsys.readouterr().err
    assert "Kubeflow Pipelines at http://127.0.0.1:9 does not answer" in said and "--endpoint http://localhost" in said
