"""The cells of `quality.py`: a corpus, all labels of it that are used, and a seed; and the source that each reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.sources import Size, article_source, beir_source, xquad_source
from stillhouse.core.artifacts import whole_folder

BEIR = {"medquad": "MedQuAD", "squad-passages": "SQuAD passages", "scifact": "SciFact"}
SETS = BEIR | {"peps-articles": "PEPs", "mdn-articles": "MDN", "xquad-de": "XQuAD German"}
SIZE = Size(passages=2000, train=2000, dev=150, test=400)
SOURCES: Mapping[str, Callable[[Path, Path], None]] = {name: partial(beir_source, name, SIZE) for name in BEIR} | {
    "peps-articles": partial(article_source, "peps-articles", Size(2000, 100, 43, 100)),
    "mdn-articles": partial(article_source, "mdn-articles", Size(2000, 250, 100, 235)),
    "xquad-de": partial(xquad_source, "de", SIZE),
}
"""Of the data's folder and the source's: what writes it."""
SEEDS = (1, 2, 3)
"""Of the training."""
HOURS = 0.25
"""What `new` is given for a run on one core."""


@dataclass(frozen=True)
class Cell:
    """One run of the benchmark."""

    corpus: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.corpus}-{self.seed}"


CELLS = tuple(Cell(corpus, seed) for seed in SEEDS for corpus in SETS)
"""Those of the first seed come first, so that a benchmark that was stopped early has something of everything."""


def prepare(cell: Cell, data: Path, folder: Path) -> None:
    """Writes the source of a cell, whole or not at all."""
    if not (folder / "source").is_dir():
        with whole_folder(folder / "source") as staging:
            SOURCES[cell.corpus](data, staging)
