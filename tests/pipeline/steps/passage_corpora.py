"""Corpora whose passages tests write by hand, their tokens, and encoders that `pretrain` trains on these."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.config import build
from stillhouse.corpus.store import write_tables
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.pretrain import STEP, Config
from stillhouse.pipeline.steps.tokenize import STEP as TOKENIZE


def write_passages(
    folder: Path, texts: Sequence[str], tables: Mapping[str, Mapping[str, list[Any]]] | None = None, **columns: Any
) -> Path:
    """Write a corpus of passages without titles, articles and links, unless `columns` and other `tables` have these."""
    count = len(texts)
    passages = {
        "passage_id": [f"p{n}" for n in range(count)],
        "title": [""] * count,
        "text": list(texts),
        "article_id": [""] * count,
        "section": [""] * count,
        "position": [0] * count,
    }
    with whole_folder(folder) as staging:
        write_tables(staging, {"passages": passages | columns, **(tables or {})})
        write_manifest(staging, "ingest", {}, {}, {"passages": count})
    return folder


def tokenized(folder: Path, corpus: Path, tokenizer: Path) -> Path:
    """Write the tokens of a corpus to `folder`."""
    execute(TOKENIZE, TOKENIZE.config(), {"corpus": corpus, "tokenizer": tokenizer}, {"tokens": folder})
    return folder


def pretrained(inputs: Mapping[str, Path], into: Path, settings: Mapping[str, Any]) -> Path:
    """Run `pretrain` and return the encoder; the curves are beside it."""
    outputs = {"encoder": into / "encoder", "curves": into / "curves"}
    execute(STEP, build(Config, settings, "pretraining"), inputs, outputs)
    return outputs["encoder"]


def losses_of(curves: Path) -> list[float]:
    with (curves / "curves.csv").open() as file:
        return [float(row["heldout_loss"]) for row in csv.DictReader(file)]
