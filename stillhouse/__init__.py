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

from stillhouse.pipeline.steps.registry import MODULES as _STEPS

if TYPE_CHECKING:
    from stillhouse.core.errors import InputError as InputError
    from stillhouse.core.errors import ValidationFailed as ValidationFailed
    from stillhouse.corpus.store import Corpus as Corpus
    from stillhouse.models.cross_encoder import CrossEncoder as CrossEncoder
    from stillhouse.models.encoder import BiEncoder as BiEncoder
    from stillhouse.pipeline.api.recipe import Run as Run
    from stillhouse.pipeline.api.results import Evaluation as Evaluation
    from stillhouse.pipeline.api.results import StepResult as StepResult
    from stillhouse.search.searcher import Hit as Hit
    from stillhouse.search.searcher import Searcher as Searcher
    from stillhouse.serving.stores.searcher import StoreSearcher as StoreSearcher

__version__ = "0.2.0"

_NAMES = {
    "stillhouse.pipeline.api.corpora": ("ingest_passages",),
    "stillhouse.pipeline.api.inference": ("encode", "predict"),
    "stillhouse.pipeline.api.recipe": ("Run", "new", "run"),
    "stillhouse.pipeline.api.results": ("Evaluation", "StepResult"),
    "stillhouse.pipeline.api.training": ("train_retriever",),
    "stillhouse.corpus.store": ("Corpus",),
    "stillhouse.core.errors": ("InputError", "ValidationFailed"),
    "stillhouse.models.cross_encoder": ("CrossEncoder",),
    "stillhouse.models.encoder": ("BiEncoder",),
    "stillhouse.search.searcher": ("Hit", "Searcher"),
    "stillhouse.serving.stores.searcher": ("StoreSearcher",),
}
"""The public names of each module; steps are public too. The imports above repeat the classes for type checkers."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *dict.fromkeys((*_STEPS, *_MODULES))]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    elif name in _STEPS:
        value = import_module("stillhouse.pipeline.api.step_function").step_function(name.replace("_", "-"))
    else:
        raise AttributeError(f"module 'stillhouse' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
