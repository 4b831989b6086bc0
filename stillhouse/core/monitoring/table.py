"""The table of all metrics, used by the code, the alert rules and the dashboard.

Live metrics are served on `/metrics` while a step runs and vanish with it. Results are pushed once, at the end, and
stay at the Pushgateway until the same step of the same pipeline pushes again. The same applies to results of whole runs
and of schedules. No metric is both, so that nothing is counted twice.
"""

from dataclasses import dataclass

COMMON = ("pipeline", "step", "run")
"""Labels of every metric of a step: the pipeline, its task and the run."""
GROUPED_BY = ("pipeline", "step")
"""The name of a step's group at the Pushgateway. It excludes the run, so that new results replace the last ones."""


@dataclass(frozen=True)
class Metric:
    """One metric. `labels` are its own, in addition to the common ones of its group."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


LIVE = (
    Metric("stillhouse_examples_total", "counter", "Training examples, texts, pairs or rows done", ("work",)),
    Metric("stillhouse_progress_ratio", "gauge", "Share of the current work that is done, if known", ("work",)),
    Metric("stillhouse_last_progress_timestamp_seconds", "gauge", "When the current work last made progress"),
    Metric("stillhouse_training_steps_total", "counter", "Optimiser steps since the process started"),
    Metric("stillhouse_training_loss", "gauge", "Training loss of the last step"),
    Metric("stillhouse_heldout_loss", "gauge", "Held-out loss, as last measured"),
    Metric("stillhouse_learning_rate", "gauge", "Learning rate of the last step"),
    Metric("stillhouse_gradient_norm", "gauge", "Norm of the last step's gradient before clipping"),
    Metric("stillhouse_signal", "gauge", "Retrieval signals of a training, as last measured", ("signal",)),
    Metric("stillhouse_gpu_memory_bytes", "gauge", "GPU memory: allocated, reserved, peak, total", ("kind",)),
)
RESULTS = (
    Metric("stillhouse_step_success", "gauge", "1 if the step's last run succeeded, else 0"),
    Metric("stillhouse_step_failure", "gauge", "1 for the reason why the step's last run failed", ("reason",)),
    Metric("stillhouse_step_finished_timestamp_seconds", "gauge", "When the step's last run ended"),
    Metric("stillhouse_step_duration_seconds", "gauge", "How long the step's last run took"),
    Metric("stillhouse_step_examples_per_second", "gauge", "Throughput of the step's last run", ("work",)),
    Metric("stillhouse_step_figure", "gauge", "A figure of the step's report, as in its metrics file", ("figure",)),
    Metric("stillhouse_validation_passed", "gauge", "1 if the corpus passed validation, else 0"),
    Metric("stillhouse_promotion_accepted", "gauge", "1 if the challenger passed its comparison, 0 if refused"),
    Metric("stillhouse_promotion_released", "gauge", "1 if the run's challenger is the release, else 0"),
)
RUNS = (
    Metric("stillhouse_run_success", "gauge", "1 if the pipeline's last run succeeded, 0 if it failed"),
    Metric("stillhouse_run_finished_timestamp_seconds", "gauge", "When the pipeline's last run ended"),
)
"""Pushed by the last task of a run, one group per pipeline; only the time if Kubeflow does not know how it ended."""
SCHEDULES = (
    Metric("stillhouse_schedule_interval_seconds", "gauge", "How often a schedule looks for a new corpus"),
    Metric("stillhouse_schedule_checked_timestamp_seconds", "gauge", "When a schedule last looked for a new corpus"),
    Metric(
        "stillhouse_schedule_fresh_timestamp_seconds", "gauge", "When the release was last seen to match the corpus"
    ),
    Metric("stillhouse_schedule_in_flight", "gauge", "1 while a run for the changed corpus is in flight, else 0"),
)
"""Pushed by the watcher, one group per schedule, named only by the label `schedule`."""
SERVICES = (
    Metric("stillhouse_serve_requests_total", "counter", "Requests answered", ("endpoint", "status")),
    Metric("stillhouse_serve_request_seconds", "histogram", "Seconds from a request to its answer", ("endpoint",)),
    Metric("stillhouse_serve_batch_tokens", "histogram", "Tokens per batch"),
    Metric("stillhouse_serve_texts_total", "counter", "Texts encoded"),
    Metric("stillhouse_serve_waiting", "gauge", "Texts in the queue"),
    Metric("stillhouse_serve_release", "gauge", "1 for the release in use", ("release",)),
    Metric("stillhouse_serve_swaps", "gauge", "Releases that replaced another since the service started"),
    Metric("stillhouse_serve_refusals", "gauge", "Releases refused since the service started"),
    Metric("stillhouse_serve_refused", "gauge", "1 while a release is refused, else 0"),
    Metric("stillhouse_serve_behind_seconds", "gauge", "Seconds by which the service lags behind the release in use"),
    Metric("stillhouse_serve_looked_timestamp_seconds", "gauge", "When the source of the releases last responded"),
)
"""The metrics that `stillhouse serve` has at its own `/metrics` (`stillhouse/serving/metrics.py`)."""

REASONS = ("bad_input", "validation", "not_finite", "out_of_memory", "interrupted", "crash")
"""Values of `reason`."""
