"""Fixtures that write a small source and read it into a clean corpus."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.corpus.cleaning import CleanCorpus, clean
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.options import Options

Files = dict[str, str | bytes]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes files to a folder; with `packed`, each as gzip with the suffix `.gz`."""

    def make(files: Files, *, packed: bool = False, folder: str = "source") -> Path:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            path = tmp_path / folder / (f"{name}.gz" if packed else name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(data) if packed else data)
        return tmp_path / folder

    return make


@pytest.fixture
def read() -> Callable[..., CleanCorpus]:
    """Return a function that reads a source into a clean corpus; keywords are fields of `Options`."""

    def take(location: Path, format: str = "auto", **options: str) -> CleanCorpus:
        return clean(open_source(str(location), format, Options(**options)).rows())

    return take
