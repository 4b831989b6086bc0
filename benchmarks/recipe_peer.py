"""sentence-transformers' side of `sentence_transformers_recipe.py`: its own miner, trainers and losses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from recipe_run import SYSTEMS, TEMPERATURE, Run

from stillhouse.arrays import save_array
from stillhouse.corpus.store import Corpus, passage_texts

RELATIVE_MARGIN = 0.05
"""That of the examples of `mine_hard_negatives`."""
MINED = 3
"""Negatives that it mines for a query by itself, each of which makes an example."""


def contrastive(model: Any) -> Any:
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    return CachedMultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, mini_batch_size=32)


class Peer:
    """Its parts of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def make(self) -> None:
        """The two systems of sentence-transformers."""
        from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss

        def distillation(model: Any) -> Any:
            return DistillKLDivLoss(model, student_temperature=TEMPERATURE, teacher_temperature=1.0)

        examples = self.make_mined()
        two = self.training("their first two stages", self.run.start, contrastive, 2, examples)
        self.run.saved("their cross-encoder", lambda into: self.cross_encoder(examples["train"], into))
        scored = {split: self.scored(split, rows) for split, rows in examples.items()}
        self.training(SYSTEMS[3], two, distillation, 1, scored)

    def make_mined(self) -> dict[str, dict[str, list[Any]]]:
        """The first of them, which needs no cross-encoder; gives what it learned from."""
        from transformers.utils import logging

        logging.set_verbosity_error()
        examples = self.mined_examples()
        self.training(SYSTEMS[2], self.run.start, contrastive, 3, examples)
        return examples

    def mined_examples(self) -> dict[str, dict[str, list[Any]]]:
        """Of both splits, the triplets' columns."""
        splits = ("train", "dev")
        for split in splits:
            self.run.saved(f"their negatives {split}", partial(self.negatives, split))
        return {split: self.examples(f"their negatives {split}") for split in splits}

    def loaded(self, folder: Path) -> Any:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device=str(self.run.device))

    def negatives(self, split: str, into: Path) -> None:
        """Triplets by the starting model; of the passages that answer a query of the split, which is its default."""
        from datasets import Dataset
        from sentence_transformers.util import mine_hard_negatives

        corpus = Corpus.open(self.run.corpus)
        texts, queries = np.array(passage_texts(corpus), dtype=object), corpus.queries_of(split)
        offsets, positives = corpus.positives(queries["query_id"])
        anchors = np.repeat(queries["text"].to_numpy(dtype=object), np.diff(offsets))
        pairs = Dataset.from_dict({"anchor": list(anchors), "positive": list(texts[positives])})
        mined = mine_hard_negatives(
            pairs,
            self.loaded(self.run.start),
            num_negatives=MINED,
            relative_margin=RELATIVE_MARGIN,
            output_format="triplet",
            batch_size=128,
            verbose=False,
        )
        (into / "triplets.json").write_text(json.dumps([list(row.values()) for row in mined]), encoding="utf-8")

    def examples(self, name: str) -> dict[str, list[Any]]:
        rows = json.loads((self.run / name / "triplets.json").read_text(encoding="utf-8"))
        return {column: [row[place] for row in rows] for place, column in enumerate(("anchor", "positive", "negative"))}

    def training(
        self,
        name: str,
        begin: Path,
        loss: Callable[[Any], Any],
        stages: int,
        examples: dict[str, dict[str, list[Any]]],
    ) -> Path:
        """`SentenceTransformerTrainer`, whose best model by the dev loss is saved."""
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
        from sentence_transformers.training_args import BatchSamplers

        def make(into: Path) -> None:
            model = self.loaded(begin)
            steps, work = stages * self.run.budget.steps, self.run / f"{name} work"
            every = max(1, self.run.budget.steps // 4)
            settings = SentenceTransformerTrainingArguments(
                output_dir=str(work),
                warmup_steps=max(1, steps // 10),
                batch_sampler=BatchSamplers.NO_DUPLICATES,
                eval_strategy="steps",
                eval_steps=every,
                eval_on_start=True,
                save_strategy="steps",
                save_steps=every,
                save_total_limit=2,
                load_best_model_at_end=True,
                metric_for_best_model="eval_loss",
                greater_is_better=False,
                per_device_eval_batch_size=self.run.budget.batch,
                **self.common(steps, self.run.budget.batch, self.run.budget.learning_rate),
            )
            data = {split: Dataset.from_dict(rows) for split, rows in examples.items()}
            SentenceTransformerTrainer(model, settings, data["train"], data["dev"], loss=loss(model)).train()
            model.save(str(into), create_model_card=False)
            shutil.rmtree(work, ignore_errors=True)

        return self.run.saved(name, make)

    def common(self, steps: int, batch: int, learning_rate: float) -> dict[str, Any]:
        """The settings of both trainers."""
        return {
            "max_steps": steps,
            "per_device_train_batch_size": batch,
            "learning_rate": learning_rate,
            "bf16": self.run.budget.bf16,
            "use_cpu": self.run.device.type == "cpu",
            "logging_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "seed": self.run.budget.seed,
        }

    def cross_encoder(self, examples: dict[str, list[Any]], into: Path) -> None:
        """As many pairs as the re-ranker here: three in four are wrong."""
        from datasets import Dataset
        from sentence_transformers.cross_encoder import (
            CrossEncoder,
            CrossEncoderTrainer,
            CrossEncoderTrainingArguments,
        )
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

        budget = self.run.budget
        model = CrossEncoder(
            str(self.run.start), num_labels=1, max_length=2 * budget.length, device=str(self.run.device)
        )
        right = dict.fromkeys(zip(examples["anchor"], examples["positive"]), 1.0)
        wrong = dict.fromkeys(zip(examples["anchor"], examples["negative"]), 0.0)
        pairs = {**wrong, **right}
        columns = {
            "anchor": [anchor for anchor, _ in pairs],
            "passage": [passage for _, passage in pairs],
            "label": list(pairs.values()),
        }
        work = self.run / "their cross-encoder work"
        settings = CrossEncoderTrainingArguments(
            output_dir=str(work),
            warmup_steps=max(1, budget.reranker_steps // 5),
            save_strategy="no",
            **self.common(budget.reranker_steps, 32, 2 * budget.learning_rate),
        )
        loss = BinaryCrossEntropyLoss(model)
        CrossEncoderTrainer(model, settings, Dataset.from_dict(columns), loss=loss).train()
        model.save_pretrained(str(into))
        shutil.rmtree(work, ignore_errors=True)

    def scored(self, split: str, examples: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Triplets with the cross-encoder's scores of both their passages."""
        from sentence_transformers.cross_encoder import CrossEncoder
        from torch import nn

        def make(into: Path) -> None:
            model = CrossEncoder(str(self.run / "their cross-encoder"), device=str(self.run.device))
            scores = [
                model.predict(
                    list(zip(examples["anchor"], examples[column])),
                    activation_fn=nn.Identity(),
                    batch_size=64,
                    show_progress_bar=False,
                )
                for column in ("positive", "negative")
            ]
            save_array(into / "scores.npy", np.stack(scores, axis=1).astype(np.float32))

        place = self.run.saved(f"their teacher {split}", make)
        return examples | {"label": np.load(place / "scores.npy").tolist()}
