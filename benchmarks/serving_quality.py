"""What the precisions of a service cost: nDCG@10 of test questions with bf16 passages and int8 queries.

    python benchmarks/serving_quality.py ARTIFACTS

ARTIFACTS is the folder of a run, of which the corpus (`ingest/corpus`) and the start (`fetch_model/encoder`) are read,
such as a cell of quality.py: build/quality/medquad-all-1/ours/artifacts. Texts are encoded as the service does, and
searched exactly. Prints one line for each pair of precisions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.titles import passage_text
from stillhouse.errors import InputError
from stillhouse.retrieval.models.query_encoder import PlainBert, open_passage_encoder, open_query_encoder
from stillhouse.serving.batch_encoder import BatchEncoder, PackedBert
from stillhouse.serving.int8_queries import Int8Bert
from stillhouse.serving.precision import DevQueries, ndcg10

AT_ONCE = 32
DEPTH = 10


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", metavar="ARTIFACTS", type=Path, help="the artifacts of a run")
    folder = parser.parse_args(argv).artifacts
    torch.set_num_threads(1)
    corpus, model = Corpus.open(folder / "ingest" / "corpus"), folder / "fetch_model" / "encoder"
    context = Context(folder, "cpu", quiet=True)
    queries = open_query_encoder(model, context)
    passages = open_passage_encoder(model, queries, context) if isinstance(queries, PlainBert) else None
    if not isinstance(queries, PlainBert) or passages is None:
        raise InputError(f"{model} is not a BERT that the service reads by itself; its texts are encoded in fp32")
    test, rows = test_queries(corpus), corpus.passages
    texts = [passage_text(title, text, corpus.titles) for title, text in zip(rows["title"], rows["text"], strict=True)]
    of_passages: dict[str, BatchEncoder] = {"fp32": PackedBert(passages), "bf16": PackedBert(passages, torch.bfloat16)}
    of_queries: dict[str, BatchEncoder | Int8Bert] = {"fp32": PackedBert(queries), "int8": Int8Bert(queries)}
    queries_QD = {name: encoded(encoder, test.texts) for name, encoder in of_queries.items()}
    print(f"{len(test.texts)} questions, {len(texts):,} passages, nDCG@{DEPTH}:")
    for precision, encoder in of_passages.items():
        passages_ND = encoded(encoder, texts)
        for name, vectors_QD in queries_QD.items():
            rows_QK = np.argsort(-(vectors_QD @ passages_ND.T), axis=1, kind="stable")[:, :DEPTH].astype(np.int32)
            print(f"passages in {precision}, queries in {name}: {ndcg10(test, rows_QK):.4f}")
    return 0


def test_queries(corpus: Corpus) -> DevQueries:
    """The judged test queries."""
    qrels, queries = corpus.relevant("test").reset_index(drop=True), corpus.queries_of("test")
    queries = queries[queries["query_id"].isin(set(qrels["query_id"]))]
    qrels["passage_id"] = corpus.rows_of(qrels["passage_id"])
    return DevQueries(list(queries["query_id"]), list(queries["text"]), qrels)


def encoded(encoder: BatchEncoder | Int8Bert, texts: Sequence[str]) -> NDArray[np.float32]:
    ids = encoder.tokenize(texts)
    return np.concatenate([encoder.vectors(ids[begin : begin + AT_ONCE]) for begin in range(0, len(ids), AT_ONCE)])


if __name__ == "__main__":
    sys.exit(main())
