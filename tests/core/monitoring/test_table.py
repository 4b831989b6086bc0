"""The table of metrics, and the environment variables that turn them on."""

from __future__ import annotations

import sys

import pytest

from stillhouse.core.errors import InputError, NotFinite, ValidationFailed
from stillhouse.core.monitoring.settings import LONGEST_LABEL, MonitoringSettings, label, monitoring_settings
from stillhouse.core.monitoring.table import LIVE, REASONS, RESULTS, RUNS, SCHEDULES, SERVICES
from stillhouse.core.monitoring.watch import reason, watch


def test_nothing_is_both_served_and_pushed() -> None:
    """Otherwise a sum over all series would count it twice."""
    served, pushed = (*LIVE, *SERVICES), (*RESULTS, *RUNS, *SCHEDULES)
    assert not {metric.name for metric in served} & {metric.name for metric in pushed}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, MonitoringSettings()),
        ({"STILLHOUSE_METRICS_PORT": "9464"}, MonitoringSettings(port=9464)),
        (
            {"STILLHOUSE_PUSHGATEWAY": "http://gateway:9091", "STILLHOUSE_TASK": "mine_2", "STILLHOUSE_RUN": "r"},
            MonitoringSettings(gateway="http://gateway:9091", task="mine_2", run="r"),
        ),
    ],
)
def test_settings_are_read_from_the_environment(environment: dict[str, str], expected: MonitoringSettings) -> None:
    assert monitoring_settings(environment) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {"STILLHOUSE_METRICS_PORT": "metrics"},
        {"STILLHOUSE_METRICS_PORT": "70000"},
        {"STILLHOUSE_PUSHGATEWAY": "gateway:9091"},
        {"STILLHOUSE_PUSHGATEWAY": "http://"},
        {"STILLHOUSE_PUSHGATEWAY": "http://[::1"},
        {"STILLHOUSE_PUSHGATEWAY": "http://bob:hush@gateway:9091"},
        {"STILLHOUSE_PUSHGATEWAY": "http://hush@gateway:9091"},
        {"STILLHOUSE_PUSHGATEWAY": "bob:hush@gateway:9091"},
        {"STILLHOUSE_PUSHGATEWAY": "ftp://bob:hush@gateway"},
        {"STILLHOUSE_PUSHGATEWAY": "http://gateway:9091?token=hush"},
    ],
)
def test_a_wrong_environment_is_refused_with_an_example(environment: dict[str, str]) -> None:
    [variable] = environment
    with pytest.raises(InputError, match=f"for example {variable}=") as error:
        monitoring_settings(environment)
    assert "hush" not in str(error.value)


def test_labels_are_short_and_plain() -> None:
    assert label('a "run"\n{of} mine') == "a_run_of_mine"
    assert len(label("x" * 500)) == LONGEST_LABEL
    assert label("") == "none"


def test_a_step_that_nobody_watches_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with watch("mine", print) as watched:
        watched.monitor.trained(1.0, 1.0, 1.0, 1)


class OutOfMemoryError(RuntimeError):
    """Has the same name as PyTorch's class."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("wrong"), "bad_input"),
        (ValidationFailed("wrong"), "validation"),
        (FloatingPointError("the loss is nan"), "not_finite"),
        (NotFinite("the loss is nan"), "not_finite"),
        (OutOfMemoryError("no memory"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (KeyboardInterrupt(), "interrupted"),
        (OSError("disk"), "crash"),
    ],
)
def test_every_error_maps_to_a_reason_in_the_table(error: BaseException, expected: str) -> None:
    assert reason(error) == expected
    assert expected in REASONS
