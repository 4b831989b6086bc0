"""The cells of `quality.py`: a corpus, how many of its labels are used, and a seed; and the source that each reads."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stillhouse.core.artifacts import whole_folder

SETS = {"medquad": "MedQuAD", "squad-passages": "SQuAD passages", "scifact": "SciFact"}
LABELS = {"none": 0, "300": 300, "all": 2000}
"""Train questions at most."""
SEEDS = {"300": (1,), "all": (1, 2, 3)}
"""Without labels, `no_labels` measures more corpora."""
HOURS = 0.25
"""What `new` is given for a run on one core."""
FIXED = 0
"""Seed of the dev and test questions and of the passages, which all cells of a corpus share."""
Qrels = dict[str, dict[str, str]]
"""Query id -> passage id -> grade, as written."""


@dataclass(frozen=True)
class Cell:
    """One run of the benchmark."""

    corpus: str
    labels: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.corpus}-{self.labels}-{self.seed}"


@dataclass(frozen=True)
class Size:
    """How much of a corpus a cell reads. Every passage that answers one of its questions is always there."""

    passages: int
    dev: int
    test: int


SIZE = Size(passages=2000, dev=150, test=400)

CELLS = tuple(
    Cell(corpus, labels, seed) for seed in (1, 2, 3) for labels in SEEDS for corpus in SETS if seed in SEEDS[labels]
)
"""Those of the first seed come first, so that a benchmark that was stopped early has something of everything."""


def prepare(cell: Cell, data: Path, folder: Path) -> None:
    """Writes the source of a cell, whole or not at all."""
    if not (folder / "source").is_dir():
        with whole_folder(folder / "source") as staging:
            write_source(cell, SIZE, data, staging)


def write_source(cell: Cell, size: Size, data: Path, folder: Path, pool: int = LABELS["all"]) -> None:
    """Writes a cell's part of a corpus as a BEIR folder. Without labels, only the test questions are there.

    The answers of `pool` train questions are among the passages, whether a cell asks them or not."""
    source = data / cell.corpus
    judged = {split: read_qrels(source / "qrels" / f"{split}.tsv") for split in ("train", "dev", "test")}
    if not judged["dev"]:  # SciFact has none: some of the train questions
        names = shuffled(judged["train"], FIXED)[: size.dev]
        judged["dev"] = {name: judged["train"].pop(name) for name in names}
    asked_of = shuffled(judged["train"], FIXED)[:pool]
    kept = {
        "train": random.Random(cell.seed).sample(asked_of, min(LABELS[cell.labels], len(asked_of))),
        "dev": shuffled(judged["dev"], FIXED)[: size.dev if LABELS[cell.labels] else 0],
        "test": shuffled(judged["test"], FIXED)[: size.test],
    }
    needed = {passage for name in asked_of for passage in judged["train"][name]}
    for split in ("dev", "test"):
        asked = shuffled(judged[split], FIXED)[: vars(size)[split]]
        needed |= {passage for name in asked for passage in judged[split][name]}
    others = [row["_id"] for row in rows(source / "corpus.jsonl") if row["_id"] not in needed]
    needed |= set(random.Random(FIXED).sample(others, max(0, min(len(others), size.passages - len(needed)))))
    wanted = {name for names in kept.values() for name in names}
    (folder / "qrels").mkdir(parents=True)
    write(folder / "corpus.jsonl", (row for row in rows(source / "corpus.jsonl") if row["_id"] in needed))
    write(folder / "queries.jsonl", (row for row in rows(source / "queries.jsonl") if row["_id"] in wanted))
    for split, names in kept.items():
        lines = [f"{name}\t{passage}\t{grade}\n" for name in names for passage, grade in judged[split][name].items()]
        if lines:
            (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))


def shuffled(names: dict[str, dict[str, str]], seed: int) -> list[str]:
    return random.Random(seed).sample(sorted(names), len(names))


def read_qrels(path: Path) -> Qrels:
    """The positive judgements of a split; empty where there is no such file."""
    found: Qrels = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:] if path.is_file() else ():
        query, passage, grade = line.split("\t")
        if int(grade) > 0:
            found.setdefault(query, {})[passage] = grade
    return found


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Those of a JSONL file, packed or not."""
    packed = path.with_name(f"{path.name}.gz")
    with gzip.open(packed, "rt", encoding="utf-8") if packed.is_file() else path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(path: Path, found: Iterator[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
