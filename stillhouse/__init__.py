"""Stillhouse turns a text corpus into a distilled dense retriever and its search index.

    stillhouse.new("work", "articles/")
    stillhouse.run("work").searcher().search("why do bats hunt at night")

`new` and `run` work on a whole recipe. Every other function runs the step it is named after and returns the folder
that the step wrote; docs/quickstart.md shows both. Names are imported on first use, so `import stillhouse` loads
neither PyTorch nor faiss.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillhouse.api.corpora import generate_queries as generate_queries
    from stillhouse.api.corpora import ingest as ingest
    from stillhouse.api.corpora import ingest_passages as ingest_passages
    from stillhouse.api.corpora import validate as validate
    from stillhouse.api.inference import encode as encode
    from stillhouse.api.inference import predict as predict
    from stillhouse.api.recipe import Run as Run
    from stillhouse.api.recipe import new as new
    from stillhouse.api.recipe import run as run
    from stillhouse.api.results import BM25Result as BM25Result
    from stillhouse.api.results import Evaluation as Evaluation
    from stillhouse.api.results import StepResult as StepResult
    from stillhouse.api.results import TrainingResult as TrainingResult
    from stillhouse.api.results import Winner as Winner
    from stillhouse.api.search import bm25 as bm25
    from stillhouse.api.search import evaluate as evaluate
    from stillhouse.api.search import hybrid as hybrid
    from stillhouse.api.search import index as index
    from stillhouse.api.search import mine as mine
    from stillhouse.api.search import rerank as rerank
    from stillhouse.api.search import retrieve as retrieve
    from stillhouse.api.search import select_best as select_best
    from stillhouse.api.training import average as average
    from stillhouse.api.training import fetch_model as fetch_model
    from stillhouse.api.training import importance as importance
    from stillhouse.api.training import pretrain as pretrain
    from stillhouse.api.training import score_pairs as score_pairs
    from stillhouse.api.training import tokenize as tokenize
    from stillhouse.api.training import train_query_encoder as train_query_encoder
    from stillhouse.api.training import train_reranker as train_reranker
    from stillhouse.api.training import train_retriever as train_retriever
    from stillhouse.corpus.store import Corpus as Corpus
    from stillhouse.errors import InputError as InputError
    from stillhouse.errors import ValidationFailed as ValidationFailed
    from stillhouse.retrieval.models.cross_encoder import CrossEncoder as CrossEncoder
    from stillhouse.retrieval.models.encoder import BiEncoder as BiEncoder
    from stillhouse.retrieval.search.searcher import Hit as Hit
    from stillhouse.retrieval.search.searcher import Searcher as Searcher

__version__ = "0.1.0"

_NAMES = {
    "stillhouse.api.corpora": ("generate_queries", "ingest", "ingest_passages", "validate"),
    "stillhouse.api.inference": ("encode", "predict"),
    "stillhouse.api.recipe": ("Run", "new", "run"),
    "stillhouse.api.results": ("BM25Result", "Evaluation", "StepResult", "TrainingResult", "Winner"),
    "stillhouse.api.search": ("bm25", "evaluate", "hybrid", "index", "mine", "rerank", "retrieve", "select_best"),
    "stillhouse.api.training": (
        "average",
        "fetch_model",
        "importance",
        "pretrain",
        "score_pairs",
        "tokenize",
        "train_query_encoder",
        "train_reranker",
        "train_retriever",
    ),
    "stillhouse.corpus.store": ("Corpus",),
    "stillhouse.errors": ("InputError", "ValidationFailed"),
    "stillhouse.retrieval.models.cross_encoder": ("CrossEncoder",),
    "stillhouse.retrieval.models.encoder": ("BiEncoder",),
    "stillhouse.retrieval.search.searcher": ("Hit", "Searcher"),
}
"""The public names of each module. The imports above repeat them for type checkers and editors."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'stillhouse' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
