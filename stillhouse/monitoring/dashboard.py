"""The Grafana dashboard from a table of panels; write it with `python -m stillhouse.monitoring.dashboard FILE`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHOSEN = '{pipeline=~"$pipeline",run=~"$run"}'
"""The selection by the variables at the top of the page."""
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Panel:
    """A panel: its title, Grafana's name for the unit, and (query, legend) pairs.

    Kind "newest" shows a bar for the newest value of each series, "timeseries" all values over time.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


OF_STEP = "{{step}} {{run}}"
PANELS = (
    Panel("Progress", "percentunit", ((f"stillhouse_progress_ratio{CHOSEN}", "{{step}} {{work}}"),)),
    Panel(
        "Throughput, and the release's throughput",
        "none",
        (
            (f"stillhouse:examples:rate10m{CHOSEN}", "{{step}} {{work}}"),
            ('stillhouse:release_examples_per_second{pipeline=~"$pipeline"}', "release: {{step}} {{work}}"),
        ),
    ),
    Panel(
        "Time since last progress",
        "s",
        ((f"time() - stillhouse_last_progress_timestamp_seconds{CHOSEN}", OF_STEP),),
    ),
    Panel(
        "Loss",
        "none",
        (
            (f"stillhouse_training_loss{CHOSEN}", "training, {{step}}"),
            (f"stillhouse_heldout_loss{CHOSEN}", "held out, {{step}}"),
        ),
    ),
    Panel("Gradient norm", "none", ((f"stillhouse_gradient_norm{CHOSEN}", OF_STEP),)),
    Panel("Learning rate", "sci", ((f"stillhouse_learning_rate{CHOSEN}", OF_STEP),)),
    Panel("Retrieval signals", "none", ((f"stillhouse_signal{CHOSEN}", "{{signal}}, {{step}}"),)),
    Panel("Optimiser steps per second", "none", ((f"rate(stillhouse_training_steps_total{CHOSEN}[5m])", OF_STEP),)),
    Panel("GPU memory", "bytes", ((f"stillhouse_gpu_memory_bytes{CHOSEN}", "{{kind}}, {{step}}"),)),
    Panel(
        "Succeeded",
        "bool_yes_no",
        (
            (f"stillhouse_run_success{CHOSEN}", "run of {{pipeline}}, {{run}}"),
            (f"stillhouse_step_success{CHOSEN}", OF_STEP),
        ),
        "newest",
    ),
    Panel("Failure reason", "none", ((f"stillhouse_step_failure{CHOSEN} == 1", "{{step}}: {{reason}}"),), "newest"),
    Panel(
        "Duration and end",
        "s",
        (
            (f"stillhouse_step_duration_seconds{CHOSEN}", "{{step}} took"),
            (f"time() - stillhouse_step_finished_timestamp_seconds{CHOSEN}", "time since {{step}} ended"),
            (f"time() - stillhouse_run_finished_timestamp_seconds{CHOSEN}", "time since the run of {{pipeline}} ended"),
        ),
        "newest",
    ),
    Panel("Figures of the last run", "none", ((f"stillhouse_step_figure{CHOSEN}", "{{step}}: {{figure}}"),), "newest"),
    Panel(
        "Throughput of the last run",
        "none",
        ((f"stillhouse_step_examples_per_second{CHOSEN}", "{{step}}: {{work}}"),),
        "newest",
    ),
    Panel(
        "Validation passed, challenger accepted, released",
        "bool_yes_no",
        (
            (f"stillhouse_validation_passed{CHOSEN}", "validation, {{run}}"),
            (f"stillhouse_promotion_accepted{CHOSEN}", "promotion, {{run}}"),
            (f"stillhouse_promotion_released{CHOSEN}", "release, {{run}}"),
        ),
        "newest",
    ),
    Panel(
        "Age of the release's corpus, and checks of the schedule",
        "s",
        (
            ("time() - stillhouse_schedule_fresh_timestamp_seconds", "{{schedule}}: since last up to date"),
            ("time() - stillhouse_schedule_checked_timestamp_seconds", "{{schedule}}: since last check"),
            ("stillhouse_schedule_interval_seconds", "{{schedule}}: interval"),
        ),
    ),
    Panel("Schedule's run in flight", "bool_yes_no", (("stillhouse_schedule_in_flight", "{{schedule}}"),), "newest"),
    Panel(
        "Requests per second, by status",
        "reqps",
        (("sum by (endpoint, status) (rate(stillhouse_serve_requests_total[5m]))", "{{endpoint}} {{status}}"),),
    ),
    Panel(
        "Response time",
        "s",
        (
            ("stillhouse:serve_p99_seconds", "p99, {{endpoint}}"),
            (
                "histogram_quantile(0.5, sum by (endpoint, le) (rate(stillhouse_serve_request_seconds_bucket[5m])))",
                "median, {{endpoint}}",
            ),
        ),
    ),
    Panel("Failed or rejected requests", "percentunit", (("stillhouse:serve_failed_ratio", "share"),)),
    Panel("Texts in the queue", "none", (("stillhouse_serve_waiting", "{{pod}}"),)),
    Panel(
        "Texts encoded per second, and tokens per batch",
        "none",
        (
            ("sum(rate(stillhouse_serve_texts_total[5m]))", "texts"),
            ("histogram_quantile(0.5, sum by (le) (rate(stillhouse_serve_batch_tokens_bucket[5m])))", "median batch"),
        ),
    ),
    Panel("Pods per release", "none", (("sum by (release) (stillhouse_serve_release)", "{{release}}"),), "newest"),
    Panel(
        "Releases swapped and refused",
        "none",
        (
            ("stillhouse_serve_swaps", "swapped, {{pod}}"),
            ("stillhouse_serve_refusals", "refused, {{pod}}"),
            ("stillhouse_serve_refused", "refused now, {{pod}}"),
        ),
    ),
    Panel(
        "Delay behind the release in use",
        "s",
        (
            ("stillhouse_serve_behind_seconds", "{{pod}}"),
            ("time() - stillhouse_serve_looked_timestamp_seconds", "{{pod}}: since last check"),
        ),
    ),
    Panel(
        "Drift of queries and scores",
        "none",
        (("stillhouse_serving_query_drift", "{{pod}} queries"), ("stillhouse_serving_score_drift", "{{pod}} scores")),
    ),
    Panel(
        "p-values of the drift",
        "none",
        (
            ("stillhouse_serving_query_drift_p", "{{pod}} queries"),
            ("stillhouse_serving_score_drift_p", "{{pod}} scores"),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's format."""
    variables = [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        *(
            {
                "name": name,
                "type": "query",
                "datasource": SOURCE,
                "query": {"query": f"label_values(stillhouse_step_success, {name})", "refId": name},
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
                "refresh": 2,
            }
            for name in ("pipeline", "run")
        ),
    ]
    return {
        "uid": "stillhouse",
        "title": "Stillhouse",
        "tags": ["stillhouse"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": SOURCE,
            "expr": query,
            "legendFormat": legend,
            "instant": panel.kind == "newest",
            "format": "time_series",
        }
        for place, (query, legend) in enumerate(panel.queries)
    ]
    shape: dict[str, Any] = {
        "id": number + 1,
        "title": panel.title,
        "type": "bargauge" if panel.kind == "newest" else panel.kind,
        "datasource": SOURCE,
        "gridPos": {"x": number % COLUMNS * WIDTH, "y": number // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
    if panel.kind == "newest":
        shape["options"] = {"displayMode": "basic", "orientation": "horizontal", "reduceOptions": {"calcs": ["last"]}}
    return shape


def render() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
