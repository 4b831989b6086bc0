"""Compares BM25 and dense retrieval on ReQA-SQuAD with Chang et al. (2020) Table 3; writes reqa.md beside this script.

    python benchmarks/reqa.py --folder build/reqa [--data ../shared/data] [--fine-tune 1/99]

A candidate is a sentence with its passage, and both have to be right. The folder keeps every measured row: the same
command continues a stopped run, another command adds rows, and --page-only writes the page again.

Shapes: Q queries, K depth, C cutoffs, N candidates, D width.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer
from machine import machine
from numpy.typing import NDArray
from reqa_page import write_page
from reqa_task import CUTOFFS, SEED, SPLITS, Rows, Search, Task, row, run
from transformers import AutoTokenizer

from stillhouse.context import WORK_ROOT, Context, work_root
from stillhouse.retrieval.index.corpus_encoding import encode_corpus
from stillhouse.retrieval.index.exact_search import exact_search
from stillhouse.retrieval.models.encoder import BiEncoder, encode
from stillhouse.retrieval.search.bm25 import BM25
from stillhouse.retrieval.settings import EncodingConfig
from stillhouse.steps.execute import code_digest
from stillhouse.workflow.graph import ARTIFACTS, Use

DEPTH = 200  # beyond the last cutoff, so that candidates that tie there are seen
DENSE_DISTRACTORS = 10_000
SIZE_QUERIES = 2000  # a seeded sample: a search takes time in proportion to the candidates
TRAINING = {  # three epochs, or as many steps
    "max_steps": 40,
    "batch_size": 32,
    "negatives_per_query": 1,
    "negatives_depth": 50,
    "learning_rate": 2e-5,
    "temperature": 0.05,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where artifacts and rows are kept")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--parts", default="bm25,sizes,dense", help="what is measured (default: %(default)s)")
    parser.add_argument("--fine-tune", default="", metavar="SPLITS", help="1/99,5/95,80/20: a fine-tuned row for each")
    parser.add_argument("--page-only", action="store_true", help="write the page of the rows that are there")
    arguments = parser.parse_args()
    rows = Rows(arguments.folder / "rows.json")
    if not arguments.page_only:
        for name in ("reqa-squad", "wiki-intro"):
            if not (arguments.data / name).is_dir():
                print(f"{arguments.data / name} is not here; give its parent with --data", file=sys.stderr)
                return 2
        os.environ.setdefault(WORK_ROOT, str((arguments.folder / "work").resolve()))
        task = Task.of(arguments.data.resolve(), arguments.folder / ARTIFACTS)
        for part in arguments.parts.split(","):
            {"bm25": bm25_rows, "sizes": size_rows, "dense": dense_rows}[part](task, rows)
        for split in filter(None, arguments.fine_tune.split(",")):
            fine_tuned_row(task, rows, split)
        rows.about = {"machine": machine("numpy", "torch", "bm25s", "transformers"), **task.facts()}
        rows.save()
    page = Path(__file__).with_suffix(".md")
    write_page(page, rows.rows, rows.about)
    print(f"wrote {page.name}")
    return 0


class PlainBM25:
    """BM25 of `bm25s` over tokens made by `tokens`; k1 and b are our defaults."""

    def __init__(self, texts: Sequence[str], tokens: Callable[[Sequence[str]], list[list[str]]]) -> None:
        self._tokens, self._index = tokens, bm25s.BM25(k1=1.5, b=0.75)
        self._index.index(tokens(texts), show_progress=False)

    def search(self, queries: Sequence[str], depth: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        found = self._index.retrieve(self._tokens(queries), k=depth, show_progress=False, sorted=True)
        return np.where(found.scores > 0, found.documents, -1).astype(np.int32), found.scores.astype(np.float32)


def words(texts: Sequence[str], **options: Any) -> list[list[str]]:
    """The tokens of `bm25s`, with its English stop words and without a stemmer unless `options` say otherwise."""
    options = {"stopwords": "en", "stemmer": None} | options
    tokens: list[list[str]] = bm25s.tokenize(list(texts), return_ids=False, show_progress=False, **options)
    return tokens


def word_pieces(task: Task) -> Callable[[Sequence[str]], list[list[str]]]:
    tokenizer = AutoTokenizer.from_pretrained(task.root / "minilm" / "encoder", trust_remote_code=False)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return lambda texts: [of.tokens for of in backend.encode_batch(list(texts), add_special_tokens=False)]


def stemmed(texts: Sequence[str]) -> list[list[str]]:
    return words(texts, stopwords=None, stemmer=Stemmer.Stemmer("english"))


def defaults(texts: Sequence[str]) -> BM25:
    return BM25.of(texts, k1=1.5, b=0.75)


def white_space(texts: Sequence[str]) -> PlainBM25:
    """Tokens are split at white space and keep case and punctuation."""
    return PlainBM25(texts, partial(words, stopwords=None, lower=False, token_pattern=r"\S+"))


def lexical(task: Task, index: Any) -> Search:
    return lambda asked: index.search(list(task.queries[asked]), DEPTH)


def bm25_rows(task: Task, rows: Rows) -> None:
    """BM25 over all candidates: our defaults for every split, and what makes a difference on 1/99."""
    bare = partial(words, stopwords=None)
    variants: dict[str, tuple[str, Callable[[list[str]], Any]]] = {
        "defaults": ("both", defaults),
        "k1 0.9, b 0.4": ("both", lambda texts: BM25.of(texts, 0.9, 0.4)),
        "k1 1.2, b 0.75": ("both", lambda texts: BM25.of(texts, 1.2, 0.75)),
        "sentence alone": ("sentence", defaults),
        "passage alone": ("passage", defaults),
        "no stemmer": ("both", lambda texts: PlainBM25(texts, words)),
        "no stop words": ("both", lambda texts: PlainBM25(texts, stemmed)),
        "no stemmer, no stop words": ("both", lambda texts: PlainBM25(texts, bare)),
        "word pieces of BERT": ("both", lambda texts: PlainBM25(texts, word_pieces(task))),
        "white space, case kept": ("both", white_space),
        "sentence alone, no stemmer, no stop words": ("sentence", lambda texts: PlainBM25(texts, bare)),
        "sentence alone, white space, case kept": ("sentence", white_space),
    }
    for name, (what, make) in variants.items():
        for split in SPLITS if name == "defaults" else SPLITS[:1]:

            def measured(what: str = what, make: Any = make, split: str = split, name: str = name) -> Any:
                search = lexical(task, make(task.texts(task.near, what)))
                recalls_QC = task.recalls(search, task.tests[split], task.near)
                return row(recalls_QC, len(task.near), group="bm25", variant=name, split=split)

            rows.add(f"bm25 {split}: {name}", measured)


def size_rows(task: Task, rows: Rows) -> None:
    """BM25 against the number of candidates: quarters and halves of the articles, then with distractors.

    The articles are dealt into four parts. Every query is asked among the part of its own article, among that and the
    next, and among all: the same queries at every size.
    """
    drawn = np.random.default_rng(SEED).permutation(task.tests["1/99"])[:SIZE_QUERIES]
    asked = np.sort(drawn)
    article = task.corpus.passages["section"].to_numpy(dtype=object)
    titles = np.random.default_rng(SEED).permutation(sorted(set(article[task.near])))
    part_of = {title: number % 4 for number, title in enumerate(titles)}
    part_N = np.array([part_of.get(title, -1) for title in article])
    offsets, relevant = task.positives
    part_Q = part_N[relevant[offsets[asked]]]
    for variant, what, make in (
        ("defaults", "both", defaults),
        ("sentence alone", "sentence", defaults),
        ("white space, case kept", "both", white_space),
    ):

        def recalls(chosen: NDArray[np.int64], some: NDArray[np.int64], what: str = what, make: Any = make) -> Any:
            return task.recalls(lexical(task, make(task.texts(chosen, what))), some, chosen)

        for parts in (1, 2):

            def of_parts(parts: int = parts, variant: str = variant, recalls: Any = recalls) -> Any:
                recalls_QC, sizes = np.zeros((len(asked), len(CUTOFFS))), []
                for first in range(4):
                    chosen = np.flatnonzero(np.isin(part_N, [(first + later) % 4 for later in range(parts)]))
                    recalls_QC[part_Q == first] = recalls(chosen, asked[part_Q == first])
                    sizes += [len(chosen)] * int((part_Q == first).sum())
                return row(recalls_QC, round(np.mean(sizes)), group="size", variant=variant, distractors=0)

            rows.add(f"size {variant}: {parts}/4", of_parts)
        for distractors in (0, DENSE_DISTRACTORS, 20_000, len(task.far)):

            def among(distractors: int = distractors, variant: str = variant, recalls: Any = recalls) -> Any:
                chosen = np.sort(np.concatenate([task.near, task.far[:distractors]]))
                recalls_QC = recalls(chosen, asked)
                return row(recalls_QC, len(chosen), group="size", variant=variant, distractors=distractors)

            rows.add(f"size {variant}: all + {distractors}", among)


def dense_rows(task: Task, rows: Rows) -> None:
    """The unchanged model, for every split, with and without distractors."""
    names = {n: {split: f"dense {split}: zero-shot + {n}" for split in SPLITS} for n in (0, DENSE_DISTRACTORS)}
    if all(name in rows.rows for of in names.values() for name in of.values()):
        return
    encoder = BiEncoder.load(task.root / "minilm" / "encoder")
    queries_QD = query_vectors(task, encoder)
    for distractors, of in names.items():
        chosen = np.sort(np.concatenate([task.near, task.far[:distractors]]))
        search = exact(task, encoder, queries_QD, chosen)
        for split, name in of.items():
            rows.add(name, partial(dense_row, task, search, split, chosen, "zero-shot"))


def dense_row(task: Task, search: Search, split: str, chosen: NDArray[np.int64], variant: str) -> dict[str, Any]:
    recalls_QC = task.recalls(search, task.tests[split], chosen)
    return row(recalls_QC, len(chosen), group="dense", variant=variant, split=split)


def query_vectors(task: Task, encoder: BiEncoder) -> NDArray[np.float32]:
    context = Context(work_root() / "reqa")
    return encode(encoder, encoder.queries(list(task.queries)), context, "queries", EncodingConfig())


def exact(task: Task, encoder: BiEncoder, queries_QD: NDArray[np.float32], chosen: NDArray[np.int64]) -> Search:
    """An exact search of some rows, which are encoded or known from before."""
    context = Context(work_root() / "reqa")
    encoded = encode_corpus(encoder, task.corpus, context, EncodingConfig(), rows=chosen)
    vectors_ND = encoded.embeddings.rows(np.arange(len(chosen)))
    return lambda asked: exact_search(queries_QD[asked], [(0, vectors_ND)], DEPTH)


def fine_tuned_row(task: Task, rows: Rows, split: str) -> None:
    """A retriever fine-tuned on the train queries of a split with BM25's negatives; few steps."""
    name = split.replace("/", "_")
    corpus = {"corpus": f"{name}/ingest/corpus"}
    inputs = corpus | {"encoder": "minilm/encoder", "negatives": f"{name}/bm25/negatives"}
    source = {"source": str(task.data / "reqa-squad"), "format": "reqa", "reqa_split": split}
    settings: dict[str, Any] = {
        f"{name}/ingest": source | {"max_test_queries": 1},
        f"{name}/bm25": {"depth": 1, "negatives_depth": 50},
        f"{name}/retriever": TRAINING,
    }
    uses = [
        Use(f"{name}/ingest", "ingest"),
        Use(f"{name}/bm25", "bm25", corpus),
        Use(f"{name}/retriever", "train-retriever", inputs),
    ]

    def measured() -> Any:
        run(uses, settings, task.root)
        encoder = BiEncoder.load(task.root / name / "retriever" / "retriever")
        curves = task.root / name / "retriever" / "curves" / "curves.csv"
        steps = curves.read_text(encoding="utf-8").splitlines()[-1].split(",")[0]
        variant = f"fine-tuned, {steps} steps of {TRAINING['batch_size']} queries"
        search = exact(task, encoder, query_vectors(task, encoder), task.near)
        return dense_row(task, search, split, task.near, variant)

    rows.add(f"dense {split}: fine-tuned + 0", measured)


if __name__ == "__main__":
    sys.exit(main())
