"""What a run reports about its cost: the index size always, a time only if requested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stillhouse.core.artifacts import read_manifest


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
