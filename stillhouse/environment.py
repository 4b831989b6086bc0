"""What beside settings and data shows in a step's outputs: Stillhouse's own code and the libraries that compute.

DVC goes by the files that a stage depends on. This is that file: a stage that runs each time writes it, all others
depend on it, and so a step is taken from the run cache only where the code and the libraries are the same.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stillhouse.artifacts import digest_files, digest_json

COMPUTING = ("steps", "corpus", "acceleration", "pretraining", "training", "retrieval", "evaluation")
"""The parts of the package whose code shows in outputs; surfaces, releases and the like do not."""
ALONE = (
    "arrays.py",
    "artifacts.py",
    "config.py",
    "context.py",
    "curves.py",
    "former_names.py",
    "setting_kinds.py",
    "remote/dvc_source.py",
)
"""Modules beside them that they import and whose code shows too: what is written, recorded, read or fetched."""
CODE = (".py", ".html", ".css")
"""Files that show in outputs: code, and what pages are made from."""
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
"""Libraries of several names, one of which is installed."""


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
    """The version of Python and of every library, "" for one that is not here; none is imported for that.

    A build's own mark is left out (`2.13.0+cpu` is 2.13.0), so that a laptop and a GPU image share a cache.
    """
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "libraries": dict(libraries()),
    }


@cache
def libraries() -> dict[str, str]:
    """The version of every library, looked up once a process."""
    return {name: _version(BUILDS.get(name, (name,))) for name in LIBRARIES}


def _version(names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return ""
