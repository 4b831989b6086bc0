"""The systems that a whole run compares and the trainings it makes, by the names that every surface uses."""

from __future__ import annotations

SYSTEMS = {
    "bm25": "BM25, the lexical baseline",
    "zero_shot": "the starting model as it is",
    "retriever_1_unpretrained": "retriever 1 (BM25 negatives) without pre-training",
    "retriever_1": "retriever 1: pre-trained, BM25 negatives",
    "retriever_2": "retriever 2: pre-trained, negatives mined by retriever 1",
    "reranked": "retriever 2's top passages re-ordered by the cross-encoder",
    "distilled": "distilled retriever: mined negatives and the cross-encoder's scores",
}

TRAININGS = {
    "lm_head": "language-model head",
    "pretraining": "pre-training",
    "retriever_1_unpretrained": "retriever 1 without pre-training",
    "retriever_1": "retriever 1",
    "retriever_2": "retriever 2",
    "reranker": "re-ranker",
    "distilled": "distilled retriever",
}
