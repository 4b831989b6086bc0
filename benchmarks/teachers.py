"""Is there a cross-encoder that teaches better than BM25 with the retriever? Writes teachers.md beside this.

    python benchmarks/teachers.py --folder build/quality --work build/teachers [--cell scifact-all-2 …] [--only plain …]

It reads what finished runs of quality.py made in `--folder`. Each variant trains a cross-encoder on the train questions
of a cell. It ranks the best 20 passages of the first stage (BM25 and retriever 2 with weights from dev) for the dev and
test questions, alone and fused with the first stage. Measured variants are kept in teachers.measured.json, so a stopped
run continues where it was.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from kept import read_kept, write_kept
from machine import machine
from notes import write_page
from numpy.typing import NDArray
from teachers_first_stage import TOP, FirstStage, Shortlist
from teachers_page import CONTROL, FIRST, page_lines
from teachers_training import (
    DEV_RANKING,
    FUSED_LOSS,
    Examples,
    LabelledQuestions,
    SentencesOfTheCorpus,
    final_scores,
    late_interaction,
    new_model,
    train_variant,
)

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.retrieval.fine_tuning.groups import GroupSampler
from stillhouse.retrieval.mining.negatives import Negatives
from stillhouse.retrieval.models.cross_encoder import CrossEncoder
from stillhouse.training.settings import TrainingConfig

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "teachers.measured.json"
BATCH = 16
DEPTH = 50
"""Negatives are drawn from this many of the best mined ones, of retriever 1, of BM25 and at random."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A cross-encoder and its training; the defaults are those of the row `faster`.

    `start` is the model before training or `retriever_2`. With the pooling `late` there is no training. `residual`
    names the retriever that, with BM25, makes the score that the cross-encoder's is added to in training. Negatives are
    `mined` as for retriever 2, or among the best `TOP` passages of BM25 with a retriever. `sentences` of the corpus are
    learnt before the labels."""

    label: str
    start: str = "start"
    pooling: str = "cls"
    loss: str = "listwise"
    residual: str | None = None
    negatives_of: str = "mined"
    sentences: int = 0
    learning_rate: float = 1e-4
    epochs: float = 2
    negatives: int = 3
    chosen_by: str = FUSED_LOSS
    seed: int = 1


HARD = {"negatives_of": "start"}
RESIDUAL = HARD | {"residual": "start"}
MEAN = {"pooling": "mean", "start": "retriever_2"}
COSINE = MEAN | {"pooling": "cosine"}
VARIANTS = {
    "plain": Variant(
        label="[CLS], listwise, from the start, learning rate 5e-5", learning_rate=5e-5, chosen_by=DEV_RANKING
    ),
    "faster": Variant(label="learning rate 1e-4"),
    "from-retriever": Variant(label="from retriever 2", start="retriever_2"),
    "mean": Variant(label="mean of all tokens", pooling="mean"),
    "bce": Variant(label="binary cross-entropy", loss="bce"),
    "hard": Variant(label="negatives among the best 20 of BM25 + start", **HARD),
    "residual": Variant(label="residual", **RESIDUAL),
    "residual-mean": Variant(label="residual, mean, from retriever 2", **RESIDUAL, **MEAN),
    "residual-cosine": Variant(label="residual, cosine of both halves, from retriever 2", **RESIDUAL, **COSINE),
    "residual-cosine-2": Variant(label="the same residual, seed 2", **RESIDUAL, **COSINE, seed=2),
    "cosine-longer": Variant(label="the same residual, 4 epochs", **RESIDUAL, **COSINE, epochs=4),
    "cosine": Variant(label="cosine of both halves, from retriever 2, no residual", **HARD, **COSINE),
    "cosine-2": Variant(label="the same without residual, seed 2", **HARD, **COSINE, seed=2),
    "warm-up": Variant(label="the same residual, sentences first", **RESIDUAL, **COSINE, sentences=1000),
    "late": Variant(label="no training: late interaction of retriever 2's tokens", start="retriever_2", pooling="late"),
}
RETRIEVERS = {
    "start": ("fetch_model/encoder", "zero_shot_index/index"),
    "retriever_2": ("retriever_2/retriever", "retriever_2_index/index"),
}
"""The folders of a run's retrievers and of their indexes."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of quality.py, with a folder per cell")
    parser.add_argument("--work", type=Path, required=True, help="where trainings keep their checkpoints")
    parser.add_argument(
        "--cell", nargs="+", default=["scifact-all-2", "squad-passages-300-1", "medquad-300-1", "medquad-all-3"]
    )
    parser.add_argument("--only", nargs="+", metavar="VARIANT", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args(argv)
    os.environ["STILLHOUSE_QUIET"] = "1"
    found = read_kept(MEASURED)
    for cell in arguments.cell:
        if all(name in found.get(cell, {}) for name in (FIRST, CONTROL, *arguments.only)):
            continue
        place = Place(arguments.folder.resolve() / cell / "ours" / "artifacts", arguments.work.resolve() / cell)
        rows = found.setdefault(cell, {})
        rows |= place.baselines()
        for name in arguments.only:
            if name not in rows:
                rows[name] = place.measured(VARIANTS[name]) | {"machine": machine("torch", "transformers")}
                write_kept(MEASURED, found)
                print(cell, name, {key: value for key, value in rows[name].items() if key not in ("test", "machine")})
    if any(found.values()):
        write_page(HERE / "teachers.md", page_lines(found, {name: row.label for name, row in VARIANTS.items()}))
    return 0


class Place:
    """The artifacts of a finished run, and the shortlists of its first stage."""

    def __init__(self, artifacts: Path, work: Path) -> None:
        self.artifacts, self.work = artifacts, work
        work.mkdir(parents=True, exist_ok=True)
        self.context = Context(work=work, quiet=True)
        self.corpus = Corpus.open(artifacts / "ingest" / "corpus")
        self.passages = passage_texts(self.corpus)
        self.stages = {name: self.stage(name) for name in RETRIEVERS}
        self.lists = {split: self.stages["retriever_2"].shortlist(split) for split in ("dev", "test")}

    def stage(self, retriever: str) -> FirstStage:
        model, index = (self.artifacts / folder for folder in RETRIEVERS[retriever])
        return FirstStage(self.artifacts, model, index, self.corpus, self.context)

    def baselines(self) -> dict[str, Any]:
        """The first stage, and the same scores with weights fitted on its best passages of dev alone."""
        dev, test = self.lists["dev"], self.lists["test"]
        about = {
            "passages": len(self.passages),
            "questions": {
                "train": len(self.corpus.queries_of("train")),
                "dev": len(dev.texts),
                "test": len(test.texts),
            },
            "weights": [self.stages["retriever_2"].fusion.bm25, self.stages["retriever_2"].fusion.dense],
            "found": {split: round(float(found.right_QK.any(1).mean()), 4) for split, found in self.lists.items()},
            "dev": mean(dev.reciprocal_ranks(dev.first_QK)),
            "test": rounded(test.reciprocal_ranks(test.first_QK)),
        }
        for name, stage in self.stages.items():
            train = stage.shortlist("train")
            about[f"train by {name}"] = mean(train.reciprocal_ranks(train.first_QK))
        for split, asked in self.lists.items():
            about[f"{split} by start"] = mean(asked.reciprocal_ranks(self.added("start", asked)))
        return {FIRST: about, CONTROL: fused(dev, test, None, None)}

    def measured(self, variant: Variant) -> dict[str, Any]:
        """The ranks of a variant after its training, and what the training took."""
        if variant.pooling == "late":
            return self.late(variant)
        begun = time.process_time()
        dev, test = self.lists["dev"], self.lists["test"]
        added = {split: self.added(variant.residual, asked) for split, asked in self.lists.items()}
        model, found = self.trained(variant, self.labelled(variant), added["dev"])
        scores = {split: final_scores(model, asked, self.passages, self.context) for split, asked in self.lists.items()}
        found["alone dev"] = mean(dev.reciprocal_ranks(scores["dev"] + added["dev"]))
        found["alone"] = rounded(test.reciprocal_ranks(scores["test"] + added["test"]))
        found |= fused(dev, test, scores["dev"], scores["test"])
        return found | {"seconds": round(time.process_time() - begun)}

    def trained(
        self, variant: Variant, labelled: LabelledQuestions, added_QK: NDArray[np.float32]
    ) -> tuple[CrossEncoder, dict[str, Any]]:
        """A trained cross-encoder, the number of pairs it has read and its curves; `added_QK` is added on dev."""
        work = self.work / "training"
        shutil.rmtree(work, ignore_errors=True)  # a stopped training begins anew
        model = new_model(self.artifacts / RETRIEVERS[variant.start][0], variant.pooling, variant.seed)
        config = TrainingConfig(
            epochs=variant.epochs, batch_size=BATCH, learning_rate=variant.learning_rate, seed=variant.seed
        )
        found: dict[str, Any] = {}
        parts: list[tuple[str, Examples]] = [("labels", labelled)]
        if variant.sentences:
            parts.insert(0, ("sentences", self.sentences(variant)))
        chooses = self.lists["dev"].every_second()
        for part, examples in parts:
            (work / part).mkdir(parents=True)
            context = Context(work=work / part, quiet=True)
            extra = added_QK[::2] if part == "labels" else np.zeros_like(added_QK[::2])
            curves = train_variant(
                model, examples, chooses, self.passages, extra, variant.loss, variant.chosen_by, config, context
            )
            found["pairs"] = found.get("pairs", 0) + curves[-1].step * BATCH * (1 + variant.negatives)
            found[f"curves of {part}"] = [
                [row.step, *(round(value, 5) for value in (row.train_loss, row.heldout_loss, *row.signals.values()))]
                for row in curves
            ]
        return model, found

    def late(self, variant: Variant) -> dict[str, Any]:
        """The ranks of a retriever's late interaction, which needs no training."""
        begun, folder = time.process_time(), self.artifacts / RETRIEVERS[variant.start][0]
        scores = {name: late_interaction(folder, of, self.passages, self.context) for name, of in self.lists.items()}
        found: dict[str, Any] = {"alone dev": mean(self.lists["dev"].reciprocal_ranks(scores["dev"]))}
        found["alone"] = rounded(self.lists["test"].reciprocal_ranks(scores["test"]))
        found |= fused(self.lists["dev"], self.lists["test"], scores["dev"], scores["test"])
        return found | {"seconds": round(time.process_time() - begun)}

    def added(self, residual: str | None, asked: Shortlist) -> NDArray[np.float32]:
        """What is added to the cross-encoder's scores of a shortlist."""
        if residual is None:
            return np.zeros(asked.rows_QK.shape, dtype=np.float32)
        return self.stages[residual].pair_scores(asked.texts, *asked.pairs()).reshape(asked.rows_QK.shape)

    def labelled(self, variant: Variant, half: int | None = None) -> LabelledQuestions:
        """The train questions; with `half` those with an even (0) or an odd number (1)."""
        of = variant.negatives_of
        mined = self.artifacts / "mine_2" / "negatives"
        negatives = Negatives.read(mined) if of == "mined" else self.stages[of].negatives()
        sampler = GroupSampler(self.corpus, negatives, "train", variant.negatives, DEPTH, variant.seed)
        chosen = np.arange(len(sampler))[half::2] if half is not None else np.arange(len(sampler))
        added = self.stages[variant.residual] if variant.residual else None
        return LabelledQuestions(sampler, chosen, self.passages, added)

    def sentences(self, variant: Variant) -> SentencesOfTheCorpus:
        stage = self.stages["retriever_2"]
        return SentencesOfTheCorpus(stage, self.passages, variant.sentences, variant.negatives, TOP, variant.seed)


def fused(
    dev: Shortlist, test: Shortlist, dev_QK: NDArray[np.float32] | None, test_QK: NDArray[np.float32] | None
) -> dict[str, Any]:
    """The weighted sum of BM25's, the retriever's and another score, weights by likelihood on dev: RR@10 on dev by
    cross-validation, and of each test question."""
    dev_QKF, test_QKF = dev.with_score(dev_QK), test.with_score(test_QK)
    weights_F = dev.weights(dev_QKF)
    ranks = test.reciprocal_ranks(test_QKF.astype(np.float64) @ weights_F)
    return {
        "weights": [float(f"{weight:.4g}") for weight in weights_F],
        "dev": mean(dev.cross_validated(dev_QKF)),
        "test": rounded(ranks),
    }


def mean(ranks_Q: NDArray[np.float64]) -> float:
    return round(float(ranks_Q.mean()), 6)


def rounded(ranks_Q: NDArray[np.float64]) -> list[float]:
    return [round(float(rank), 4) for rank in ranks_Q]


if __name__ == "__main__":
    sys.exit(main())
