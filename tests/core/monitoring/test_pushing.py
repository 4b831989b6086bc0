"""What is pushed at the end of a step, to a gateway that records it and to gateways that fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gateway_stand_in import Gateway

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError, NotFinite, ValidationFailed
from stillhouse.core.monitoring.watch import watch
from stillhouse.kubeflow.pipelines.schedules.watch import report_schedule, watch_interval
from stillhouse.pipeline.steps.spec import Report


def test_a_step_pushes_one_group_without_its_run(
    gateway: Gateway, small_corpus: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    begun = time.time()
    run_step("bm25", {"corpus": small_corpus})
    [(method, path, samples)] = gateway.pushes
    assert (method, path) == ("PUT", "/metrics/job/stillhouse/pipeline/refresh/step/bm25")
    assert samples["stillhouse_step_success", ""] == 1
    assert begun <= samples["stillhouse_step_finished_timestamp_seconds", ""] <= time.time()
    assert 0 < samples["stillhouse_step_duration_seconds", ""] <= time.time() - begun
    assert sum(value for (name, _), value in samples.items() if name == "stillhouse_step_failure") == 0


def test_the_task_of_the_graph_names_the_group(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_TASK", "retriever_2")
    with watch("train-retriever", print) as watched:
        watched.report = Report("done", metrics={"heldout_loss": 1.5})
    assert gateway.pushes[0][1].endswith("/step/retriever_2")
    assert gateway.pushes[0][2]["stillhouse_step_figure", "heldout_loss"] == 1.5


def test_a_failed_step_pushes_its_reason(gateway: Gateway) -> None:
    with pytest.raises(NotFinite), watch("mine", print):
        raise NotFinite("the loss is nan at step 3")
    samples = gateway.pushes[0][2]
    assert samples["stillhouse_step_success", ""] == 0
    failures = [own for (name, own), value in samples.items() if name == "stillhouse_step_failure" and value]
    assert failures == ["not_finite"]


def test_a_failed_validation_pushes_its_verdict(gateway: Gateway) -> None:
    with pytest.raises(ValidationFailed), watch("validate", print):
        raise ValidationFailed("no", Report("no", facts={"passed": False}))
    with watch("validate", print) as watched:
        watched.report = Report("yes", facts={"passed": True})
    verdicts = [samples["stillhouse_validation_passed", ""] for _, _, samples in gateway.pushes]
    assert verdicts == [0, 1]
    assert gateway.pushes[0][2]["stillhouse_step_failure", "validation"] == 1


def test_a_step_pushes_its_throughput(gateway: Gateway) -> None:
    begun = time.monotonic()
    with watch("score-pairs", print) as watched:
        watched.monitor.began("scoring", 100, 0)
        watched.monitor.advanced("scoring", 100)
        time.sleep(0.05)
        watched.monitor.ended("scoring")
    throughput = gateway.pushes[0][2]["stillhouse_step_examples_per_second", "scoring"]
    assert 100 / (time.monotonic() - begun) <= throughput <= 100 / 0.05


@pytest.mark.parametrize("where", ["nobody there", "refuses"])
def test_a_failed_push_costs_a_line_and_nothing_more(
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    small_corpus: Path,
    run_step: Callable[..., dict[str, Path]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusing = Gateway(status=500)
    url = refusing.url if where == "refuses" else "http://127.0.0.1:1"
    monkeypatch.setenv("STILLHOUSE_PUSHGATEWAY", url)
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    outputs = run_step("bm25", {"corpus": small_corpus})
    refusing.server.shutdown()
    assert read_manifest(outputs["run"]).step == "bm25"
    said = [line for line in capsys.readouterr().err.splitlines() if "not pushed" in line]
    assert len(said) == 1
    assert url in said[0]


def test_a_taken_port_costs_a_line_and_nothing_more(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_METRICS_PORT", str(gateway.server.server_port))
    lines: list[str] = []
    with watch("mine", lines.append) as watched:
        watched.monitor.advanced("mining", 1)
    assert "cannot serve metrics" in lines[0]
    assert gateway.pushes[0][2]["stillhouse_step_success", ""] == 1


def test_only_the_first_of_several_processes_pushes(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with watch("pretrain", print):
        pass
    assert gateway.pushes == []


def test_a_schedule_that_is_behind_keeps_its_last_fresh_time(gateway: Gateway) -> None:
    report_schedule("nightly", 3600, True, False, print)
    report_schedule("nightly", 3600, False, True, print)
    (method, path, fresh), (_, _, behind) = gateway.pushes
    assert (method, path) == ("POST", "/metrics/job/stillhouse/schedule/nightly"), "POST keeps what it does not name"
    assert ("stillhouse_schedule_fresh_timestamp_seconds", "") in fresh
    assert behind.keys() == fresh.keys() - {("stillhouse_schedule_fresh_timestamp_seconds", "")}
    assert behind["stillhouse_schedule_interval_seconds", ""] == 3600
    assert [logged["stillhouse_schedule_in_flight", ""] for logged in (fresh, behind)] == [0, 1]


@pytest.mark.parametrize(("text", "expected"), [("", 3600), ("600", 600)])
def test_the_watch_interval_is_read_from_the_environment(
    text: str, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLHOUSE_WATCH_SECONDS", text)
    assert watch_interval() == expected


@pytest.mark.parametrize("text", ["hourly", "0", "-5"])
def test_an_invalid_interval_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WATCH_SECONDS", text)
    with pytest.raises(InputError, match="STILLHOUSE_WATCH_SECONDS=3600"):
        watch_interval()
