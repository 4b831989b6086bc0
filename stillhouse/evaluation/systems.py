"""The names of systems and trainings in reports: a glossary of known names; other names are used as they are."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "bm25": "BM25",
    "zero_shot": "zero-shot",
    "retriever_1_unpretrained": "retriever 1, not pre-trained",
    "reranked": "re-ranked",
    "zero_shot_hybrid": "zero-shot + BM25",
    "projected": "retriever 2 with a linear layer",
    "best": "the winner",
}
SYSTEMS: Mapping[str, str] = {
    "bm25": "BM25, the lexical baseline",
    "zero_shot": "the base model",
    "retriever_1_unpretrained": "retriever 1 (BM25 negatives) without pre-training",
    "retriever_1": "retriever 1: the first hard negatives",
    "retriever_2": "retriever 2: negatives mined by retriever 1",
    "reranked": "retriever 2's top passages re-ordered by the cross-encoder",
    "projected": "retriever 2 with a linear layer that learned from all passages at once",
    "distilled": "distilled retriever: mined negatives and, if there is a teacher, its scores",
    "zero_shot_hybrid": "BM25 and the base model together",
    "averaged": "the averaged weights of the retriever before and after its training",
    "best": "the best on dev of all retrievers, alone, with BM25 and with late interaction",
}
TRAININGS: Mapping[str, str] = {
    "lm_head": "language-model head",
    "pretraining": "pre-training",
    "retriever_1_unpretrained": "retriever 1 without pre-training",
    "reranker": "re-ranker",
    "distilled": "distilled retriever",
}


def short_name(system: str) -> str:
    """A system's name in tables."""
    return NAMES.get(system, spoken(system))


def about_system(system: str) -> str:
    """A line about a system, or only its name if it is not in the glossary."""
    return SYSTEMS.get(system, spoken(system))


def about_training(training: str) -> str:
    """The model that a training trains."""
    return TRAININGS.get(training, spoken(training))


def spoken(name: str) -> str:
    return name.replace("_", " ")
