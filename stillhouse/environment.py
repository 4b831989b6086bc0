"""What affects a step's outputs besides settings and data: Stillhouse's own code and the libraries that compute.

DVC compares the files that a stage depends on. One stage runs every time and writes this description to a file, and all
other stages depend on it. So DVC takes a step from the run cache only if the code and the libraries are the same.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stillhouse.artifacts import digest_files, digest_json

COMPUTING = ("steps", "corpus", "acceleration", "pretraining", "training", "retrieval", "evaluation")
"""The subpackages that affect outputs; the command line, releases and the like do not."""
ALONE = (
    "arrays.py",
    "artifacts.py",
    "config.py",
    "context.py",
    "curves.py",
    "setting_kinds.py",
    "remote/dvc_source.py",
)
"""Other modules that they import and that affect outputs: they write, record, read or fetch data."""
CODE = (".py", ".html", ".css")
"""Files that affect outputs: code, and the templates of pages."""
LIBRARIES = (
    "MarkupSafe",
    "PyStemmer",
    "bm25s",
    "faiss",
    "great-expectations",
    "ir_measures",
    "jinja2",
    "lxml",
    "matplotlib",
    "numpy",
    "pandas",
    "py3langid",
    "pyarrow",
    "pyromark",
    "regex",
    "safetensors",
    "scipy",
    "sentencex",
    "tokenizers",
    "torch",
    "transformers",
    "webencodings",
)
BUILDS = {"faiss": ("faiss-cpu", "faiss-gpu")}
"""Libraries with several distributions, one of which is installed."""


def describe_environment() -> dict[str, object]:
    """The digest of the code, and `software`."""
    package = Path(__file__).resolve().parent
    code = {part: digest_files(package / part) for part in COMPUTING}
    shown = {
        part: {name: value for name, value in files.items() if name.endswith(CODE)} for part, files in code.items()
    }
    alone = {name: digest_json((package / name).read_text(encoding="utf-8")) for name in ALONE}
    return {"code": digest_json([shown, alone]), **software()}


def software() -> dict[str, object]:
    """The versions of Python and of every library, "" for a missing one. No library is imported.

    The build tag is left out (`2.13.0+cpu` is 2.13.0), so that a laptop and a GPU image share a cache.
    """
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "libraries": dict(libraries()),
    }


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
