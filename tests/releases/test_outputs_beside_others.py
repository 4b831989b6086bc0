"""A step whose outputs record each other, like the winner and its index, is taken from the run cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.artifacts import digest_files
from stillhouse.config import build
from stillhouse.kubernetes.pods.cached_step import RUN_CACHE, through_run_cache
from stillhouse.steps import registry
from stillhouse.steps.execute import execute
from stillhouse.steps.spec import Report
from stillhouse.workflow.uses import Use

STEP = registry.find_step("select-best")
USE = Use(
    "best",
    "select-best",
    {
        "corpus": "ingest/corpus",
        "bm25": "bm25/bm25",
        "candidates/start": "fetch_model/encoder",
        "indexes/start": "zero_shot_index/index",
    },
)


def test_a_choice_made_in_one_pod_is_read_in_another(
    runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]],
    tiny_model: Path,
    small_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, corpus = runs_of_steps(tmp_path / "steps"), {"corpus": small_corpus}
    start = run("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=24)["encoder"]
    index = run("index", corpus | {"retriever": start})["index"]
    bm25 = run("bm25", corpus, negatives_depth=4)["bm25"]
    inputs = corpus | {"bm25": bm25, "candidates/start": start, "indexes/start": index}
    config: Any = build(STEP.config, {}, "best")
    monkeypatch.setenv(RUN_CACHE, str(tmp_path / "cache"))
    made = []
    for pod in ("first", "second"):
        outputs = {port.name: tmp_path / pod / port.name for port in STEP.outputs}

        def compute(outputs: dict[str, Path] = outputs) -> Report:
            made.append(outputs)
            return execute(STEP, config, inputs, outputs)

        through_run_cache(STEP, config, inputs, outputs, compute, (USE, {}))
    assert len(made) == 1
    for port in STEP.outputs:
        assert digest_files(tmp_path / "first" / port.name) == digest_files(tmp_path / "second" / port.name)
