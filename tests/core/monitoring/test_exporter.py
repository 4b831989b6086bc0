"""Live figures from real trainings and progress bars, read over HTTP as Prometheus reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import torch
from ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from torch import Tensor, nn

from stillhouse.core.context import Context
from stillhouse.core.curves import Watch
from stillhouse.core.monitoring.exporter import Exporter
from stillhouse.core.monitoring.table import LIVE
from stillhouse.training.loop import train
from stillhouse.training.settings import TrainingConfig

COMMON = {"pipeline": "train", "step": "retriever_1", "run": "r1"}
CONFIG = TrainingConfig(learning_rate=0.1, warmup_ratio=0.5, precision="fp32", eval_steps=2, batch_size=8)


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    serving = Exporter(free_port(), COMMON)
    yield serving
    serving.close()


def scrape(exporter: Exporter) -> dict[str, dict[str, float]]:
    """Return the samples served now, by name and by the metric's own label."""
    with urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            own = {name: value for name, value in sample.labels.items() if name not in COMMON}
            assert COMMON.items() <= sample.labels.items()
            found.setdefault(sample.name, {})[next(iter(own.values()), "")] = sample.value
    return found


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1)

    def loss(self, step: int) -> Tensor:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return ((self.layer(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()


def test_a_training_exports_its_metrics(tmp_path: Path, exporter: Exporter) -> None:
    model, seen, losses = Line(), [], []

    def batch_loss(step: int) -> Tensor:
        seen.append(scrape(exporter))
        losses.append(model.loss(step))
        return losses[-1]

    watch = Watch(measure=lambda: {"mrr": 0.25})
    context = Context(tmp_path, "cpu", quiet=True, monitor=exporter)
    rows = train(model, batch_loss, lambda: [(8, model.loss(-1))], 4, CONFIG, context, watch)
    first = Line()
    first.loss(0).backward()
    norm = math.sqrt(sum(float((parameter.grad**2).sum()) for parameter in first.parameters()))
    assert "stillhouse_training_loss" not in seen[0]
    assert seen[1]["stillhouse_training_loss"][""] == pytest.approx(losses[0].item())
    assert seen[1]["stillhouse_gradient_norm"][""] == pytest.approx(norm, rel=1e-5)
    assert [now["stillhouse_learning_rate"][""] for now in seen[1:]] == pytest.approx([0.05, 0.1, 0.1])
    assert [now["stillhouse_examples_total"]["training"] for now in seen[1:]] == [8, 16, 24]
    assert [now["stillhouse_progress_ratio"]["training"] for now in seen[1:]] == [0.25, 0.5, 0.75]
    assert seen[2]["stillhouse_signal"] == {"mrr": 0.25}
    assert seen[2]["stillhouse_heldout_loss"][""] == pytest.approx(rows[1].heldout_loss)
    assert "stillhouse_last_progress_timestamp_seconds" in seen[0]
    assert "stillhouse_last_progress_timestamp_seconds" not in scrape(exporter), "nothing is at hand any more"
    assert set(scrape(exporter)) < {metric.name for metric in LIVE}


def test_a_nan_loss_is_exported_before_the_training_ends(tmp_path: Path, exporter: Exporter) -> None:
    model = Line()
    with pytest.raises(FloatingPointError):
        train(
            model,
            lambda step: model.loss(step) * (math.nan if step == 2 else 1.0),
            lambda: [(8, model.loss(-1))],
            4,
            CONFIG,
            Context(tmp_path, "cpu", quiet=True, monitor=exporter),
        )
    assert math.isnan(scrape(exporter)["stillhouse_training_loss"][""])


def test_progress_bars_export_their_progress(tmp_path: Path, exporter: Exporter) -> None:
    context = Context(tmp_path, quiet=True, monitor=exporter)
    with context.bar("encoding passages", total=10, unit="text", done=4) as bar:
        bar.update(3)
        now = scrape(exporter)
        assert now["stillhouse_progress_ratio"]["encoding_passages"] == pytest.approx(0.7)
        assert now["stillhouse_examples_total"]["encoding_passages"] == 3, "those done before were not done now"
    assert list(context.progress(iter("abc"), "reading")) == ["a", "b", "c"]
    now = scrape(exporter)
    assert now["stillhouse_examples_total"]["reading"] == 3
    assert "stillhouse_progress_ratio" not in now, "the encoding is over, and nobody knows how many rows there are"
    assert exporter.throughput().keys() == {"encoding passages", "reading"}


def test_memory_of_an_unused_gpu_is_0(exporter: Exporter) -> None:
    assert scrape(exporter)["stillhouse_gpu_memory_bytes"] == {"allocated": 0, "reserved": 0, "peak": 0, "total": 0}


def test_a_closed_exporter_frees_its_port() -> None:
    port = free_port()
    for _ in range(2):
        Exporter(port, COMMON).close()
