"""If no generator or no re-ranker model is fetched, the base model takes its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stillhouse.core.errors import InputError

Run = Callable[..., dict[str, Path]]
SHORT = {"max_steps": 2, "batch_size": 8, "eval_steps": 2, "precision": "fp32", "epochs": 100.0}
PASSAGES = {"max_length": 32, "heldout_fraction": 0.25}


@pytest.fixture
def none(run_step: Run) -> Path:
    return run_step("fetch-model", {}, into="none", model="none")["encoder"]


def test_pre_training_uses_the_start_model_if_the_generator_is_none(
    run_step: Run, small_corpus: Path, tiny_model: Path, none: Path
) -> None:
    tokens = run_step("tokenize", {"corpus": small_corpus, "tokenizer": tiny_model})["tokens"]
    head = {"objective": "mlm", "trainable": "missing_head", "learning_rate": 0.03} | PASSAGES
    inputs = {"tokens": tokens, "init": tiny_model}
    trained = run_step("pretrain", inputs, into="head", **SHORT | head | {"max_steps": 60})["encoder"]
    inputs = {"tokens": tokens, "init": trained}
    simlm = SHORT | PASSAGES | {"objective": "simlm"}
    found = run_step("pretrain", inputs | {"generator": none}, into="none_given", **simlm)["encoder"]
    named = run_step("pretrain", inputs | {"generator": trained}, into="named", **simlm)["encoder"]
    first, second = (load_file(folder / "model.safetensors") for folder in (found, named))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)

    passed = run_step("pretrain", inputs, into="passed", **SHORT | head)["encoder"]
    before, after = (load_file(folder / "model.safetensors") for folder in (trained, passed))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_the_re_ranker_begins_as_the_model_does(
    run_step: Run, small_corpus: Path, tiny_model: Path, none: Path
) -> None:
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=4)["negatives"]
    inputs = {"corpus": small_corpus, "negatives": negatives, "init": none}
    settings = SHORT | {"negatives_per_query": 2, "negatives_depth": 4, "max_length": 32}
    with pytest.raises(InputError, match="has no model for the re-ranker; run `stillhouse fetch-model`"):
        run_step("train-reranker", inputs, into="refused", **settings)
    found = run_step("train-reranker", inputs | {"encoder": tiny_model}, into="found", **settings)["reranker"]
    named = run_step("train-reranker", inputs | {"init": tiny_model}, into="named", **settings)["reranker"]
    first, second = (load_file(folder / "model.safetensors") for folder in (found, named))
    assert all(torch.equal(first[name], second[name]) for name in first)
