"""What a run reports about its cost: the index size always, a time only if requested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stillhouse.acceleration import linear_layers
from stillhouse.artifacts import read_manifest


def test_a_run_reports_the_index_size_and_times_only_on_request(
    run_step: Callable[..., dict[str, Path]], tiny_model: Path, small_corpus: Path
) -> None:
    model = {"model": str(tiny_model), "query_length": 16, "passage_length": 24}
    inputs = {"corpus": small_corpus, "retriever": run_step("fetch-model", {}, **model)["encoder"]}
    inputs |= run_step("index", inputs)
    plain = run_step("retrieve", inputs, "plain", depth=5)["run"]
    timed = run_step("retrieve", inputs, "timed", depth=5, latency_queries=3)["run"]
    size = sum(path.stat().st_size for path in inputs["index"].iterdir() if path.name != "manifest.json")
    assert read_manifest(plain).facts == {"index_bytes": size}
    latency = read_manifest(timed).facts["latency_ms"]
    assert 0 < latency["median"] <= latency["p95"]
    assert (plain / "test.trec").read_bytes() == (timed / "test.trec").read_bytes()


@pytest.mark.skipif(
    not linear_layers.can_pack(torch.float32, torch.device("cpu")), reason="nothing is packed on this processor"
)
def test_the_model_is_made_ready_before_the_clock_starts(
    run_step: Callable[..., dict[str, Path]], tiny_model: Path, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"model": str(tiny_model), "query_length": 16, "passage_length": 24}
    inputs = {"corpus": small_corpus, "retriever": run_step("fetch-model", {}, **model)["encoder"]}
    inputs |= run_step("index", inputs)
    packed: list[nn.Linear] = []
    plain = linear_layers.packed_forward

    def counted(layer: nn.Linear, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        packed.append(layer)
        return plain(layer, dtype)

    monkeypatch.setattr(linear_layers, "packed_forward", counted)

    def times_packed(queries: int) -> int:
        packed.clear()
        run_step("retrieve", inputs, f"timed {queries}", depth=5, latency_queries=queries)
        return len(packed)

    assert times_packed(4) == times_packed(1) > 0
