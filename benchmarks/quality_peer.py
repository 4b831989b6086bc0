"""The side of sentence-transformers in `quality.py`: its miner and its trainer, for a given time of the processor.

Its recipe as its documentation has it: `mine_hard_negatives` by the starting model with a relative margin of 0.05, then
the contrastive loss on triplets, without duplicates in a batch; the model of the lowest dev loss is kept.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.corpus.store import Corpus, passage_texts

SCALE = 20.0
BATCH, LEARNING_RATE = 32, 2e-5
MINED = 3
"""Negatives of a query, each of which makes an example."""
TRIED = 3
"""Steps that show how long one takes."""
MEASURED = 4
"""How often the dev loss is measured in a training, beside its start."""
MOST_EPOCHS = 4
SPLITS = ("train", "dev")


def train_peer(corpus: Path, start: Path, folder: Path, seconds: float, seed: int) -> Path:
    """Trains for `seconds` of the processor, mining included. Returns the model's folder."""
    model = folder / "model"
    if model.is_dir():
        return model
    from transformers.utils import logging

    logging.set_verbosity_error()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.process_time()
    examples = triplets(Corpus.open(corpus), start)
    examples["dev"] = {name: column[::MINED] for name, column in examples["dev"].items()}
    work = folder / "work"
    step_seconds = cost(lambda steps: train(start, examples, steps, seed, work, measured=False))
    left = seconds - (time.process_time() - begun)
    measuring = (1 + MEASURED) * len(examples["dev"]["anchor"]) / BATCH / 3  # a step without the way back
    epoch = -(-len(examples["train"]["anchor"]) // BATCH)
    steps = int(min(max(1.0, left / step_seconds - measuring), MOST_EPOCHS * epoch))
    print(f"sentence-transformers: {steps} steps, {step_seconds:.1f} s each", flush=True)
    trained = train(start, examples, steps, seed, work, measured=bool(examples["dev"]["anchor"]))
    trained.save(str(folder / "model.partial"), create_model_card=False)
    shutil.rmtree(work, ignore_errors=True)
    (folder / "model.partial").rename(model)
    return model


def cost(run: Callable[[int], object]) -> float:
    """Seconds of the processor that a step takes."""
    begun = time.process_time()
    run(1)
    one = time.process_time() - begun
    run(1 + TRIED)
    return max(0.01, (time.process_time() - begun - 2 * one) / TRIED)


def triplets(corpus: Corpus, start: Path) -> dict[str, dict[str, list[str]]]:
    """The columns of its miner by split, for all questions in one call, which encodes the passages once.

    They are people's questions or, without any, made ones, and the passages that answer them.
    """
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    texts = np.array(passage_texts(corpus), dtype=object)
    split_of: dict[str, str] = {}
    pairs: dict[str, list[str]] = {"anchor": [], "positive": []}
    for split in SPLITS:
        queries = corpus.queries_of(split)
        people = queries["origin"] == "source"
        queries = queries[people] if people.any() else queries
        split_of |= dict.fromkeys(queries["text"], split)
        offsets, positives = corpus.positives(queries["query_id"])
        pairs["anchor"] += list(np.repeat(queries["text"].to_numpy(dtype=object), np.diff(offsets)))
        pairs["positive"] += list(texts[positives])
    mined = mine_hard_negatives(
        Dataset.from_dict(pairs),
        SentenceTransformer(str(start), device="cpu"),
        corpus=list(texts),
        num_negatives=MINED,
        relative_margin=0.05,
        output_format="triplet",
        batch_size=128,
        verbose=False,
    )
    found: dict[str, dict[str, list[str]]] = {split: {"anchor": [], "positive": [], "negative": []} for split in SPLITS}
    for row in mined:
        for name, text in zip(("anchor", "positive", "negative"), row.values()):
            found[split_of[row["anchor"]]][name].append(text)
    return found


def train(
    start: Path, examples: dict[str, dict[str, list[str]]], steps: int, seed: int, work: Path, measured: bool = True
) -> Any:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.training_args import BatchSamplers

    model = SentenceTransformer(str(start), device="cpu")
    every = max(1, steps // MEASURED)
    watched = {
        "eval_strategy": "steps",
        "eval_steps": every,
        "eval_on_start": True,
        "save_strategy": "steps",
        "save_steps": every,
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
    }
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(work),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        learning_rate=LEARNING_RATE,
        warmup_steps=max(1, steps // 10),
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        use_cpu=True,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=seed,
        **(watched if measured else {"save_strategy": "no"}),
    )
    data = {split: Dataset.from_dict(columns) for split, columns in examples.items()}
    loss = MultipleNegativesRankingLoss(model, scale=SCALE)
    SentenceTransformerTrainer(model, settings, data["train"], data["dev"] if measured else None, loss=loss).train()
    return model
