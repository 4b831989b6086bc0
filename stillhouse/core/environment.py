"""The libraries that compute, since unfinished work and cached vectors are continued only with the same ones.

Also environment variables that are set for a while, for code that reads them here and in processes that it starts.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version

LIBRARIES = (
    "MarkupSafe",
    "PyStemmer",
    "bm25s",
    "faiss",
    "firecrawl-anydoc",
    "gguf",
    "great-expectations",
    "ir_measures",
    "jinja2",
    "lxml",
    "matplotlib",
    "numpy",
    "pandas",
    "peft",
    "py3langid",
    "pyarrow",
    "pypdfium2",
    "pyromark",
    "regex",
    "safetensors",
    "scipy",
    "semantic-text-splitter",
    "sentence-transformers",
    "sentencex",
    "tokenizers",
    "torch",
    "transformers",
    "webencodings",
)
BUILDS = {"faiss": ("faiss-cpu", "faiss-gpu")}
"""Libraries with several distributions, one of which is installed."""


def software() -> dict[str, object]:
    """The versions of Python and of every library, "" for a missing one. No library is imported.

    The build tag is left out (`2.13.0+cpu` is 2.13.0), so that a laptop and a GPU image share a cache.
    """
    return {"python": ".".join(map(str, sys.version_info[:2])), "libraries": dict(libraries())}


@cache
def libraries() -> dict[str, str]:
    """The version of every library, looked up once per process."""
    return {name: _version(BUILDS.get(name, (name,))) for name in LIBRARIES}


def _version(names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return ""


@contextmanager
def environment_variables(values: Mapping[str, str | None]) -> Iterator[None]:
    """Sets variables of this process while the block runs, and unsets those that are None.

    Afterwards each has its former value again or is unset as before, even if the block changed it or failed.
    """
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
